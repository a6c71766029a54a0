"""The pure core: no I/O, no clock, no randomness, no Kopf. What it answers depends on its arguments alone."""
