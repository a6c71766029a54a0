"""The operators of the demo: each is a `kopf run` in a process of its own, which ends with the demo."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import contextmanager
from pathlib import Path

STEP = "demo.example.com/step"
PATIENCE = 60  # Seconds to wait for the next output of the operator.


class Operator:
    """`kopf run` of some files. Their handlers print lines for the demo."""

    def __init__(self, cluster, folder, *files, **variables):
        self._cluster = cluster
        self._asked = 0
        self._lines = queue.Queue()
        self.log = deque(maxlen=40)
        kubeconfig = cluster.kubeconfig(folder / "kubeconfig")
        self.process = subprocess.Popen(  # The command is a constant.  # noqa: S603
            [
                sys.executable,
                "-m",
                "kopf",
                "run",
                "--standalone",
                "-A",
                *map(str, files),
            ],
            env={**os.environ, "KUBECONFIG": str(kubeconfig), **variables},
            cwd=folder,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self.process.kill()
            self.process.wait()
        self._reader.join()
        self.process.stdout.close()

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line.rstrip())
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def wait(self, verb, resource, *, times=1, where):
        """Wait until the operator has sent this request."""
        for _ in range(PATIENCE):
            try:
                self._cluster.requests.wait(verb, resource, times=times, where=where, timeout=1)
            except TimeoutError:
                if self.process.poll() is not None:
                    break
            else:
                return
        self._give_up()

    def ask(self, step, **data):
        """Let a handler run a step, and yield its lines."""
        self._asked += 1
        self._cluster.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"step-{self._asked}", "labels": {STEP: step}},
                "data": {"step": step, **data},
            }
        )
        while (line := self.shown()) != ".":
            yield line

    def shown(self):
        """Return the next line that a handler prints for the demo."""
        return self.until("demo: ").removeprefix("demo: ")

    def until(self, text):
        """Return the next line of the log that has this text."""
        while text not in (line := self.line()):
            pass
        return line

    def line(self, *, within=PATIENCE):
        """Return the next line of the log."""
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            line = None
        if line is None:
            self._give_up()
        return line

    def memory(self):
        """Return the bytes of memory of the process; None if the system does not report them."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        return next(
            (int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:")), None
        )

    def _give_up(self):
        if self.process.poll() is not None:
            self._reader.join()
        raise SystemExit("The operator has ended, or fallen silent. It said:\n  " + "\n  ".join(self.log))


@contextmanager
def held_back():
    """Delay Ctrl-C until the end of this block, so that the cleanup knows a process that starts here."""
    came = []
    before = {
        number: signal.signal(number, lambda *_: came.append(True))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
