"""An operator that runs during a test. If it ends by itself, the test fails with the line that says why."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from click.testing import CliRunner, Result
from kopf.cli import CLIControls
from kopf.cli import run as run_command

from kopf_selectcache import SelectCacheError

from .request_log import ENDINGS, OperatorEnded


class StopFlag(asyncio.Event):
    """The stop flag of an operator that may also end by itself. Then Kopf would wait 5 s for the tasks that
    wait for the flag, as it does with KopfRunner. So the flag is set once Kopf's own checker of it has ended.
    """

    async def wait(self) -> Literal[True]:
        for task in asyncio.all_tasks():
            if task.get_name() == "stop-flag checker":
                task.add_done_callback(lambda _: self.set())
        return await super().wait()


class OperatorRun:
    """`kopf run` with these arguments, during a `with` block.

    It runs in a thread of the test's process, as with `kopf.testing.KopfRunner`: the operator has the
    handlers of the fixture `registry` and whatever the test has patched; the test sees its log; debuggers and
    coverage see its code; and it need not import Kopf again, which takes longer than most tests.
    """

    def __init__(self, *arguments: str | Path) -> None:
        for each in arguments:
            if not isinstance(each, str | Path):
                raise TypeError(
                    f"operator takes the arguments of `kopf run`, not a {type(each).__name__}."
                    " Write operator('app.py', '-A')"
                )
        self._arguments = [*map(str, arguments)]
        self._stop_flag = StopFlag()
        self._thread = threading.Thread(target=self._run, name="operator")
        self._is_stopping = False
        self._ended: OperatorEnded | None = None
        """The error of an operator that has not been stopped."""
        self._result: Result | None = None
        self._output: str | None = None

    @property
    def output(self) -> str:
        """All that the operator has written, with its log. It is there after the `with` block."""
        if self._output is None:
            raise RuntimeError("the operator has not ended yet: read its output after the `with` block")
        return self._output

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        return self

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = CliRunner()
        controls = CLIControls(loop=self._loop, stop_flag=self._stop_flag)
        try:
            result = runner.invoke(run_command, self._arguments, obj=controls, prog_name="kopf run")
        except BaseException as error:  # Such as that of an operator whose task is cancelled.  # noqa: BLE001
            result = Result(runner, b"", b"", b"", None, 1, error)
        self._result = result
        if not self._is_stopping:
            self._ended = error_of(result)
            ENDINGS.add(self._ended)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        failure = self._stop()
        if failure is not None and error is None:
            raise failure
        # The test may have failed because of it, without a wait.
        if self._ended is not None and error is not None and error is not self._ended:
            error.add_note(f"The operator has ended: {self._ended}")

    def _stop(self) -> OperatorEnded | None:
        """Stop the operator; return the error if it has failed. What it has printed is printed again, for
        pytest to show it.
        """
        self._is_stopping = True
        with suppress(RuntimeError):  # It has ended, and its loop is closed.
            self._loop.call_soon_threadsafe(self._stop_flag.set)
        self._thread.join()
        if self._ended is not None:
            ENDINGS.remove(self._ended)
        result, self._result = self._result, None
        assert result is not None, "the thread sets it"
        self._output = result.output
        sys.stdout.write(result.stdout)
        failure = None
        if result.exit_code != 0:
            failure = self._ended or error_of(result)
            # pytest shows the log, but not what `kopf run` prints when it ends by an exception.
            sys.stderr.write(
                result.stderr
                if isinstance(result.exception, SystemExit)
                else "".join(traceback.format_exception(cause_of(result)))
            )
        del result  # Its traceback has the sockets.
        collect_sockets()
        return failure


def error_of(result: Result) -> OperatorEnded:
    """Return the error whose text is the line that says why the operator has ended."""
    cause = cause_of(result)
    if cause is None:
        return OperatorEnded("the operator has ended by itself, with exit code 0")
    if isinstance(cause, SystemExit):  # Wrong arguments, for instance: the command has printed why.
        lines = result.output.split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "the operator has written nothing")
        return OperatorEnded(f"{last} (exit code {result.exit_code})")
    ours = isinstance(cause, SelectCacheError)
    error = OperatorEnded(str(cause) if ours else f"{type(cause).__name__}: {cause}")
    for note in getattr(cause, "__notes__", ()):
        error.add_note(note)
    return error


def cause_of(result: Result) -> BaseException | None:
    """Return the exception of the operator; that of the handler where Kopf says only that one has failed."""
    error = result.exception
    if error is not None and type(error).__name__ == "ActivityError":
        return error.__cause__ or error
    return error


def collect_sockets() -> None:
    """Close the sockets that Kopf leaves when an operator ends. Found later, they would cause a warning in
    another test.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
