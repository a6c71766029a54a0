"""The demo: an embedded cluster with thousands of objects, an operator with two small caches, and its reads.

It needs no cluster and no network, ends by itself in less than a minute, and leaves nothing behind. See
README.md. This file parses the arguments and handles Ctrl-C. story.py shows the steps.
"""

import argparse
import os
import signal
import sys


def positive(text):
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1000000")
    return int(text)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pods", type=positive, default=4_000, help="how many pods other teams have (default: %(default)s)"
    )
    parser.add_argument(
        "--runs",
        type=positive,
        default=100,
        help="how many jobs with two pods the operator caches (default: %(default)s)",
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        help="at the end, keep the cluster and the operator until Ctrl-C",
    )
    return parser.parse_args()


def main():
    arguments = read_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from story import tell  # The import takes a second; Ctrl-C must work meanwhile.  # noqa: PLC0415

        tell(arguments)
    except KeyboardInterrupt:
        print("\nEnded.", flush=True)  # A demo prints.  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # The reader has closed the pipe, as `| head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
