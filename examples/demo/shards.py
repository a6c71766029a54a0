"""The demo of several replicas: three processes share the namespaces; kill one, and see who takes over.

It needs no cluster and no network. Press 1, 2 or 3 to kill a replica with SIGKILL, or to start it again; a, b
or c to end it in order; q to quit. With --scripted it does this by itself, and checks it.
"""

import argparse
import os
import select
import shutil
import signal
import sys
import tempfile
import termios
import time
import tty
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "11-replicas"
KEYS = "1 2 3: kill a replica, or start it   a b c: end it in order   q: quit"


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scripted", action="store_true", help="kill, start and end replicas, and check it")
    parser.add_argument("--lease", type=float, default=6.0, help="seconds of a Lease (default: %(default)g)")
    return parser.parse_args()


def show(arguments):
    from fleet import HOME, NAME, TEAMS, Replicas  # The imports take a second.  # noqa: PLC0415
    from screen import BOLD, Screen  # noqa: PLC0415

    from kopf_selectcache.testing import EmbeddedCluster  # noqa: PLC0415

    screen = Screen(sys.stdout, os.environ)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-")))
        cluster = stack.enter_context(EmbeddedCluster().in_thread())
        cluster.apply(EXAMPLE / "crd.yaml")
        for name in (HOME, *TEAMS):
            cluster.namespace(name)
        cluster.create(*(page(each) for each in TEAMS))
        files = (EXAMPLE / "example.py", HERE / "hurry.py")
        replicas = stack.enter_context(Replicas(cluster, folder, files, lease=arguments.lease))
        screen.say(
            f"Three replicas of {NAME} share {len(TEAMS)} namespaces. Leases last {arguments.lease:g} s.",
            BOLD,
        )
        for name in replicas.names:
            replicas.start(name)
        if arguments.scripted or not sys.stdin.isatty():
            play(replicas, screen)
        else:
            stay(replicas, screen)


def page(namespace):
    metadata = {"name": "front", "namespace": namespace}
    spec = {"title": f"Welcome to the {namespace}"}
    return {"apiVersion": "example.com/v1", "kind": "Page", "metadata": metadata, "spec": spec}


# ---- By itself.


def play(replicas, screen):
    """Kill, start and end replicas; each namespace must be served after each step."""
    from fleet import TEAMS, is_shared_by, rows  # noqa: PLC0415

    first, second, third = replicas.names

    def step(text, action, *names):
        screen.say(f"\n{text}")
        began = time.monotonic()
        action()
        replicas.until(is_shared_by(*names))
        seconds = time.monotonic() - began
        for each in TEAMS:
            title = f"{each} after {text}"
            replicas.cluster.patch(page(each), {"spec": {"title": title}})
        for each in TEAMS:
            served = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": page(each)["metadata"]}
            replicas.cluster.wait_for(served, lambda now, of=f"{each} after": of in now["data"]["index.html"])
        for line, colour in rows(replicas):
            screen.say(f"  {line}", colour)
        screen.say(f"  After {seconds:.1f} s, every namespace has one owner, and every page is served.")

    step("Three replicas start.", lambda: None, first, second, third)
    step(
        f"SIGKILL for {second}: others take over when its Lease has expired.",
        lambda: replicas.kill(second),
        first,
        third,
    )
    step(f"{second} starts again.", lambda: replicas.start(second), first, second, third)
    step(
        f"SIGTERM for {first}: it gives its ranges away at once.", lambda: replicas.end(first), second, third
    )


# ---- With keys.


def stay(replicas, screen):
    """Show who owns what, until somebody quits."""
    from fleet import rows  # noqa: PLC0415

    drawn = 0
    with keys() as pressed:
        while (key := pressed(0.4)) != "q":
            act(replicas, key)
            lines = [*rows(replicas), (KEYS, None)]
            if drawn:
                print(f"\033[{drawn}A", end="")  # Back to the first line.  # noqa: T201
            for line, colour in lines:
                print("\033[2K", end="")  # Nothing of the last text stays.  # noqa: T201
                screen.say(line[: shutil.get_terminal_size().columns - 1], colour)
            drawn = len(lines)


def act(replicas, key):
    """Do what a key means."""
    if key and key in "123abc":
        name = replicas.names[("123" if key in "123" else "abc").index(key)]
        if name not in replicas.processes:
            replicas.start(name)
        elif key in "123":
            replicas.kill(name)
        else:
            replicas.end(name)


@contextmanager
def keys():
    """Yield a function that returns the key that is pressed within some seconds, or an empty text."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def pressed(seconds):
        return sys.stdin.read(1) if select.select([sys.stdin], [], [], seconds)[0] else ""

    try:
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def main():
    arguments = read_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        show(arguments)
    except KeyboardInterrupt:
        print("\nEnded.", flush=True)  # A demo prints.  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # The reader has closed the pipe, as `| head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
