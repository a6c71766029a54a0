"""Compares our selectors with Go's answers: the one place that says what "equal" is, for stored and live
answers."""

import re
from collections.abc import Iterable

from kopf_selectcache import BadSelector, FieldSelector, LabelSelector
from tests.oracle.generate import Case
from tests.oracle.golang import Answer

# Go sorts the requirements of a label selector by sort.Sort, which keeps the order of equal keys up to so
# many.
STABLE = 12

_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")
_KEY = re.compile(r"!?([^ =!<>]*)")


def difference(case: Case, answer: Answer) -> str | None:
    """Say how our answer differs from Go's, None where it does not."""
    try:
        return _difference(case, answer)
    # Any exception is a difference.
    except Exception as error:  # noqa: BLE001
        return f"we raise {error!r}"


def _difference(case: Case, answer: Answer) -> str | None:
    # Our one deviation: Go takes a NUL for the end of a label selector and drops what follows.
    wanted = answer["ok"] and "\0" not in case.text
    try:
        selector = LabelSelector.parse(case.text) if case.kind == "label" else FieldSelector.parse(case.text)
    except BadSelector as error:
        return f"we refuse it ({error}), Go reads {answer['canonical']!r}" if wanted else None
    if not wanted:
        return f"we read {str(selector)!r}, {'a NUL must be refused' if answer['ok'] else 'Go refuses it'}"
    if not same_text(case, str(selector), answer):
        return f"we print {str(selector)!r}, Go {answer['canonical']!r}"
    for number, (labels, expected) in enumerate(zip(case.sets, answer["matches"], strict=True)):
        if selector.matches(labels) is not expected:
            return f"set {number}, {labels!r}: Go says {expected}, we say {not expected}"
    return None


def same_text(case: Case, ours: str, answer: Answer) -> bool:
    """Compare what is printed to the byte; beyond Go's stable order, the keys' order and the requirements
    alone."""
    if ours == answer["canonical"]:
        return True
    if case.kind == "field" or len(answer["requirements"]) <= STABLE:
        return False
    requirements = _COMMA_OUTSIDE.split(ours)
    theirs = answer["requirements"]
    return sorted(requirements) == sorted(theirs) and _keys(requirements) == _keys(theirs)


def differing(answered: Iterable[tuple[Case, Answer]]) -> tuple[int, list[str]]:
    """Count the cases, and tell each one that differs: short texts first, as they show best what is wrong."""
    total, found = 0, []
    for case, answer in answered:
        total += 1
        if told := difference(case, answer):
            found.append((len(case.text), f"{case.kind} {case.text!r}\n    {told}"))
    return total, [told for _, told in sorted(found)]


def shown(total: int, found: list[str], *, first: int = 10) -> str:
    return "\n  ".join([f"{len(found):,} of {total:,} cases differ from Go, such as:", *found[:first]])


def _keys(requirements: list[str]) -> list[str]:
    return [found[1] for text in requirements if (found := _KEY.match(text))]
