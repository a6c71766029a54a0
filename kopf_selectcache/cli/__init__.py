"""The commands: one file each, with NAME, HELP, add_arguments and run."""
