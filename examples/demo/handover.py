"""The steps of the demo of several replicas: by itself, or as keys are pressed."""

import os
import select
import shutil
import sys
import tempfile
import termios
import time
import tty
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fleet import HOME, NAME, TEAMS, Replicas, is_shared_by, rows
from screen import BOLD, Screen

from kopf_selectcache.testing import EmbeddedCluster

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "11-replicas"
KEYS = "1 2 3: kill a replica, or start it   a b c: stop it   q: quit"


def show(arguments):
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
    drawn = 0
    with keys() as pressed:
        while (key := pressed(0.4)) != "q":
            act(replicas, key)
            lines = [*rows(replicas), (KEYS, None)]
            if drawn:
                screen.back(drawn)
            for line, colour in lines:
                screen.clear_line()
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
