"""`python -m bench.structure`: each figure counts what it says, and the script runs on this checkout."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from bench.call_paths import Call, Counts, Steps, cut_at_store, recording, show, summarize
from bench.source_figures import (
    Source,
    count_entries,
    count_files,
    count_layers,
    find_cycles,
    find_messages,
    find_product,
    find_shared_names,
    measure_classes,
    parse_files,
    rate_messages,
    rate_wording,
)
from bench.structure import MEASURED_ON, PACKAGE, ROOT, ROWS, is_met, write_table
from tests.rows import each_row


def write(folder: Path, **files: str) -> dict[Path, Source]:
    """Write modules into a folder; return their sources."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return parse_files(sorted(folder.glob("*.py")))


@pytest.mark.bench
def test_the_script_measures_this_checkout(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    # In a process of its own: it sets a profiler, and runs an operator.
    printed = subprocess.run(
        [sys.executable, "-m", "bench.structure", "--json", str(file)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    figures = json.loads(file.read_text())
    assert [line for line in printed.splitlines() if line.startswith("|")] == write_table(
        figures
    ).splitlines()
    assert figures["entries"] == [count_entries(ROOT / PACKAGE)]
    assert figures["entries"][0] > 5
    assert figures["layers"][0] > 5
    assert 30_000 < figures["product"][0] < 90_000
    assert 100 < figures["longest"][0] < 2_000
    assert all(0 < figures[name][0] < 100 for name in ("messages", "wording", "what"))
    for name in ("list", "get", "refused", "declare", "line"):
        calls, modules, switches = figures[name]
        assert 5 < modules <= switches < calls < 1_000
    for name in ("change", "on.change", "reconcile"):
        calls, modules = figures[name]
        assert figures["line"][0] < calls < 3_000
        assert 5 < modules < calls


def test_reads_declarations_and_changes_keep_within_their_targets() -> None:
    command = "import json; from bench.call_paths import measure_paths; print(json.dumps(measure_paths()))"
    # In a process of its own: it sets a profiler, and runs an operator.
    printed = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    figures = json.loads(printed.splitlines()[-1])
    assert set(figures) == {
        "list",
        "get",
        "refused",
        "declare",
        "line",
        "change",
        "on.change",
        "reconcile",
    }
    if sys.version_info[:2] == MEASURED_ON:
        assert is_met("list", figures["list"])
        assert is_met("get", figures["get"])
        assert is_met("refused", figures["refused"])
        assert is_met("declare", figures["declare"])
        assert is_met("change", figures["change"][:2])
        assert is_met("on.change", figures["on.change"][:2])
        assert is_met("reconcile", figures["reconcile"][:2])


def test_the_structure_keeps_within_its_targets() -> None:
    """The targets of `make structure` that are met."""
    assert count_entries(ROOT / PACKAGE) <= 14  # With `types`, of what calls return, and `sharding`.
    assert count_layers(ROOT / "setup.cfg") <= 13  # Set before `reconciler` and `sharding`.
    assert find_cycles(PACKAGE) == []
    assert is_met("store files", [count_files(ROOT / PACKAGE / "core" / "store")])
    product = parse_files(find_product(ROOT / PACKAGE))
    assert len(product) <= ROWS["product"].target[2]
    assert find_shared_names(product, ROOT / PACKAGE) == {}


def test_the_informer_keeps_within_its_targets() -> None:
    assert is_met("informer files", [count_files(ROOT / PACKAGE / "informer")])
    classes = {
        name: size
        for file in (ROOT / PACKAGE / "informer").glob("*.py")
        for name, size in measure_classes(file).items()
    }
    assert is_met("informer", classes["Informer"])
    methods, attributes, _ = ROWS["informer"].target
    above = {name for name, size in classes.items() if size.methods > methods or size.attributes > attributes}
    assert above <= {"Runtime", "StreamWriter"}, "no other may become as large"


def test_methods_attributes_and_imports_are_those_of_a_class_and_its_file(tmp_path: Path) -> None:
    text = (
        "import a\nfrom b import c\nclass A:\n    x = 1\n"
        "    def __init__(self):\n        self.y = self.z = 1\n"
        "    @property\n    def p(self): return self.q\n"
        "    @p.setter\n    def p(self, value): self.y = value\n"
        "class B: ...\n"
    )
    write(tmp_path, __init__="", a=text)
    assert count_files(tmp_path) == 1
    assert measure_classes(tmp_path / "a.py") == {"A": (2, 2, 2), "B": (0, 0, 2)}


def test_imports_for_type_checking_make_cycles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path / "made_up_for_cycles",
        __init__="",
        a="from . import b",
        b="from .c import C",
        c="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import b\nclass C: ...",
        d="from . import a",
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find_cycles("made_up_for_cycles") == [
        ["made_up_for_cycles.a", "made_up_for_cycles.b", "made_up_for_cycles.c"]
    ]


def test_names_of_classes_are_compared_within_a_folder_and_those_that_it_contains(tmp_path: Path) -> None:
    sources = {
        **write(tmp_path, a="class A: ...", b="class A: ..."),
        **write(tmp_path / "core", c="class B:\n    class C: ...", d="class Only: ..."),
        **write(tmp_path / "core" / "store", e="class C: ..."),
        **write(tmp_path / "cli", f="class B: ...\nclass Only: ..."),
    }
    assert find_shared_names(sources, tmp_path) == {"C": [tmp_path / "core"] * 2}


MESSAGES = """
class Refused(ValueError):           # message
    pass                             # message

def check(value: int) -> None:       # message
    if value < 0:                    # message
        raise Refused(describe())    # message

def start(value: int) -> None:
    check(value)
    if value > 9:                    # message
        raise Refused("too much")    # message
    run(value)

def run(value: int) -> int:
    return value

def describe() -> str:               # message
    return "a sentence"              # message

def helper():                        # message
    return 1                         # message

def path() -> str:
    return "path"

class Store:
    def put(self, value: int) -> None:
        if value:
            self.value = value
        if not value:                # message
            raise Refused(           # message
                helper())            # message
        self.logger.info("stored")   # message
        return path()
"""


def test_lines_of_messages_are_errors_log_calls_texts_checks_and_their_helpers(tmp_path: Path) -> None:
    sources = write(tmp_path, a=MESSAGES)
    expected = {number for number, line in enumerate(MESSAGES.splitlines(), 1) if line.endswith("# message")}
    (found,) = find_messages({path: tree for path, (tree, _) in sources.items()}).values()
    assert found == expected
    code = [line for line in MESSAGES.splitlines() if line]
    assert rate_messages(sources) == 100 * len(expected) / len(code)
    assert rate_messages({}) == 0


@each_row(
    ("body", "rate"),
    [
        ("with pytest.raises(ValueError, match='x'): f()", 100),
        ("assert str(error) == 'x'", 100),
        ("assert 'x' in caplog.text", 100),
        ("assert all(each.remedy == 'x' for each in errors)", 100),
        ("assert caught.value.code == 1 and str(caught.value) == 'x'", 100),
        ("assert 'canary' not in str(caught.value)", 0),
        ("assert caplog.messages == []", 0),
        ("assert len(caplog.records) == 1", 0),
        ("assert len([each for each in caplog.messages if 'x' in each]) == 1", 100),
        ("async def test(): assert str(error) == 'x'", 100),
        ("assert str(path) == 'x'", 0),
        ("with pytest.raises(ValueError): f()", 0),
        ("assert error.version == '5'", 0),
        ("x = str(5) == '5'", 0),
    ],
)
def test_a_test_asserts_wording_by_match_or_by_comparing_a_text(
    tmp_path: Path, body: str, rate: float
) -> None:
    assert (
        rate_wording(write(tmp_path, a=f"def test_a():\n    {body}\ndef helper(): assert str(error) == 'x'"))
        == rate
    )


def test_calls_are_counted_in_the_folder_alone_with_their_modules_and_switches() -> None:
    calls: list[Call] = []
    with recording(calls, __file__):
        list(map(str.upper, inner(3)))
        json.dumps(list(pairwise(inner(1))))
    assert [call.function for call in calls] == ["inner", "inner"]
    assert [call.outermost for call in calls] == [False, False], "the test itself is in the folder"
    assert summarize([Call(file, "f", outermost=False) for file in "aabab"]) == Counts(5, 2, 3)
    assert summarize([]) == Counts(0, 0, 0)


def inner(count: int) -> list[str]:
    return ["x"] * count


def test_a_line_is_the_longest_step_of_the_loop_that_stores_up_to_the_store() -> None:
    def step(*functions: str) -> list[Call]:
        return [Call("a", function, outermost=not number) for number, function in enumerate(functions)]

    line = step("Reflector.run", "Store.put", "Reader.line", "Store.progress", "notify")
    calls = [
        *step("late")[1:],
        *step("Timer.fire", "Store.progress"),
        *line,
        *step("Timer.fire", "a", "b", "c", "d", "e"),
    ]
    assert cut_at_store(calls) == line[:4]
    with pytest.raises(RuntimeError):
        cut_at_store(step("Reflector.run", "Stores.put"))


def test_a_path_to_a_handler_follows_the_steps_of_the_loop_that_lead_to_it() -> None:
    """Of each step it has the calls until the next was scheduled."""

    async def handle() -> None:
        pass

    async def deliver(heard: asyncio.Event) -> None:
        await heard.wait()
        inner(1)
        await asyncio.create_task(handle())

    async def run() -> None:
        heard = asyncio.Event()
        delivery = asyncio.create_task(deliver(heard))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(read, heard)
        asyncio.get_running_loop().call_soon(unrelated)
        await delivery

    def read(heard: asyncio.Event) -> None:
        inner(sum(number for number in range(2)))
        heard.set()
        unrelated()

    def unrelated() -> None:
        pass

    steps = Steps(handle.__code__, __file__)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        sys.setprofile(steps)
        try:
            loop.run_until_complete(run())
        finally:
            sys.setprofile(None)
    functions = [call.function.rpartition(".")[2] for call in steps.path()]
    assert functions == ["run", "run", "read", "inner", "deliver", "inner"]
    assert "6 calls in 1 files:" in show(steps.path())


def test_a_target_is_met_if_no_figure_is_more() -> None:
    assert is_met("list", [50, 9, 16])
    assert not is_met("list", [1, 1, 17])
    table = write_table({name: row.target for name, row in ROWS.items()})
    assert table.count("| yes |") == len(ROWS)
    assert "| rows of layers | 36 | 13 | 13 | yes |" in table
