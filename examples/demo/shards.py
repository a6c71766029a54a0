"""The demo of several replicas: three processes share the namespaces; kill one, and see who takes over.

It needs no cluster and no network. Press 1, 2 or 3 to kill a replica with SIGKILL, or to start it again.
Press a, b or c to stop it with SIGTERM, and q to quit. --scripted does all that without keys, and checks it.
"""

import argparse
import os
import signal
import sys


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scripted", action="store_true", help="kill, start and end replicas, and check it")
    parser.add_argument("--lease", type=float, default=6.0, help="seconds of a Lease (default: %(default)g)")
    return parser.parse_args()


def main():
    arguments = read_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from handover import show  # The import takes a second; Ctrl-C must work meanwhile.  # noqa: PLC0415

        show(arguments)
    except KeyboardInterrupt:
        print("\nEnded.", flush=True)  # A demo prints.  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # The reader has closed the pipe, as `| head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
