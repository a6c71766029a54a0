"""`check`: hints about what is legal, and may be a mistake."""

from __future__ import annotations

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.cli.conftest import Command, parsed, pod

pytestmark = pytest.mark.usefixtures("cluster")

WEB = "select['v1/pods'] = 'app=web'"
NONE = "select['v1/pods'] = 'app=none'"


@pytest.mark.parametrize(
    ("many", "hints"),
    [
        (0, []),
        (1, ["The filter does not select the only object in pods"]),
        (2, ["The filter selects none of the 2 pods"]),
    ],
)
def test_20_a_filter_that_selects_nothing_is_told_with_the_number_of_objects(
    cluster: EmbeddedCluster, command: Command, many: int, hints: list[str]
) -> None:
    cluster.create(*(pod(f"db-{number}", "db") for number in range(many)))
    (found,) = parsed(command("check", WEB, "-o", "json"))["caches"]
    assert found["hints"] == hints


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("declared", "code", "last"),
    [
        (WEB, 0, "Nothing is wrong."),
        (NONE, 0, "1 to look at: marked with '*'."),
        (
            f"{NONE}\nselect['example.com/v1/widgets'] = ''",
            1,
            "1 to be changed: marked with '!'. 1 to look at: marked with '*'.",
        ),
    ],
)
def test_20_nothing_is_wrong_only_if_nothing_is_marked(
    command: Command, declared: str, code: int, last: str
) -> None:
    said = command("check", declared)
    assert (said.code, said.output.splitlines()[-1].partition(" of memory. ")[2]) == (code, last)
