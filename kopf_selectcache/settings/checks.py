"""Checks of the values of options. Each returns the complaint and the remedy, or None."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.selectors.suggestions import near

LONGEST = 24 * 60 * 60.0
"""The longest time that an option may have. A longer one is a mistake, such as a number of milliseconds."""

Complaint: TypeAlias = tuple[str, str] | None


def number(least: float, most: float, unit: str) -> Callable[[object], Complaint]:
    def check(value: object) -> Complaint:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            return f"not a number of {unit} from {least:.12g} to {most:.12g}", f"Assign a number of {unit}"
        return None

    return check


def period(value: object) -> Complaint:
    if (value == 0 and not isinstance(value, bool)) or number(1.0, 30 * LONGEST, "seconds")(value) is None:
        return None
    return (
        f"not 0 or a number of seconds from 1 to {30 * LONGEST:.12g} (30 days)",
        "Assign 0 for no resync, or 36000 for one every ten hours",
    )


def interval(value: object) -> Complaint:
    if (value == 0 and not isinstance(value, bool)) or number(60.0, 30 * LONGEST, "seconds")(value) is None:
        return None
    return (
        f"not 0 or a number of seconds from 60 to {30 * LONGEST:.12g} (30 days)",
        "Assign 0 for no audits, or 3600 for one per hour",
    )


def objects_per_page(value: object) -> Complaint:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100_000:
        return (
            "not a whole number from 1 to 100000",
            "Assign the number of objects per page, such as 500",
        )
    return None


def one_of(*choices: object) -> Callable[[object], Complaint]:
    def check(value: object) -> Complaint:
        if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in choices):
            *others, last = map(repr, choices)
            shown = f"{', '.join(others)} or {last}"
            return f"not {shown}", f"Assign {shown}"
        return None

    return check


def no_option(owner: str, name: str, options: Collection[str]) -> DeclarationError:
    """Return the error of an option that the owner does not have."""
    meant = near(name, options)
    return DeclarationError(
        f"{owner} has no option {clipped(name, 100)!r}",
        remedy=f"Did you mean {meant}?" if meant else f"It has {', '.join(sorted(options))}",
    )


def changed_late(option: str) -> DeclarationError:
    """Return the error of an option that is changed while an operator runs with it."""
    remedy = "Assign it in a startup handler (@kopf.on.startup)"
    return DeclarationError(f"{option} can't be changed after the operator has started", remedy=remedy)
