"""docs/api.md shows the members that are public, and no others."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping, MutableMapping
from enum import Enum

import kopf_selectcache as selectcache
from kopf_selectcache import types
from tests.rows import each_row

from .pages import DOCS

PUBLIC = {
    "SelectCacheSettings": (
        "admission_timeout audit_interval batch_delay bookmarks defaults events failing_probe "
        "fetch_per_second gzip idle_timeout initial max_bytes max_page_bytes narrow_handlers "
        "on_watch_error one_watch page_limit request_timeout selectors sharding storage "
        "sync_timeout"
    ),
    "Selector": (
        "contradiction covers disjoint fields labels matches names namespaces narrowed_to query "
        "require_satisfiable requirements terms"
    ),
    "AnyOf": "contradiction covers disjoint matches narrowed_to require_satisfiable",
    "Cached": (
        "audit_interval bookmarks filter max_bytes namespaces outside page_limit resync sharded "
        "share_watches storage"
    ),
    "Defaults": (
        "audit_interval bookmarks drop fields keep labels max_bytes namespaces page_limit resync "
        "storage transform"
    ),
    "Sharding": "by lease name namespace pod ready_port static",
    "LabelSelector": "from_dict matches parse requirements",
    "FieldSelector": "from_dict matches parse terms",
    "Caches": "selectors settings start stop",
    "Cache": (
        "add_index audit blocking changes count declare exists explain fetch fetch_list forget get "
        "info is_deleted list list_cached list_outside live plan remember snapshot undeclare "
        "wait_deleted wait_for wait_synced why"
    ),
    "Key": "name namespace of",
    "Objects": (
        "append batches clear copy count extend index insert keys pop remove reverse sort unreadable version"
    ),
    "Change": (
        "body cause filter_changed initial key known_by name namespace new objects of old sent uid version"
    ),
    "Watch": "cache controller kind map predicates what",
    "Recorder": "component record stats",
    "Answer": "NO UNKNOWN YES",
    "Audit": "drift extra missing objects outdated",
    "BodyView": "clear meta metadata partial pop popitem setdefault spec status update",
    "BranchResult": "fails filter has is_known operator_namespaces",
    "ChangePlan": "bytes ended filter former kept kind missing objects opened permissions",
    "Explanation": (
        "age asks by decodes divided elsewhere indexes is_split lacks laid_over looks_at nowhere "
        "partial verdict version"
    ),
    "OutsideObject": "labels name namespace owners uid version wanted",
    "Info": "age bytes filter kind memory objects origins state trouble version",
    "Kind": "field fields group kind names namespaced plural versions",
    "Level": "DEFAULTS DEFAULT_ENTRY ENTRY KIND NOWHERE SETTINGS",
    "Live": "apply create delete ensure get list patch replace update",
    "Memory": "indexes json objects own_writes records stored unreadable values",
    "Origin": "level namespaces option value",
    "PartialObject": "partial",
    "PinnedReads": "count exists get list list_cached list_outside versions",
    "PlannedStream": "filter path query reason",
    "Reason": "EXCLUDED HIDDEN OUTSIDE OVERLAPS SHARD UNDECIDED",
    "Right": "group names namespace resource role rule verbs what_for written",
    "Selectors": "add",
    "Standing": "ABSENT CACHED DUE OUTSIDE UNKNOWN",
    "Verdict": "answer filter kind narrowest request witness",
    "WatchError": "message namespace reason resource selector state verb",
    "Why": (
        "age has_namespace kind message missing name namespace object_version since standing state "
        "unanswered version"
    ),
    "Witness": "fails fields labels name namespace",
}
"""The public members of each class whose members the page shows."""

NOT_SHOWN = runpy.run_path(str(DOCS / "conf.py"))["autodoc_default_options"]["exclude-members"].split(", ")
BASES = (tuple, Enum, str, dict, Mapping, MutableMapping, Exception, object)
"""The page shows no members of theirs."""


def classes() -> dict[str, set[str]]:
    """Return what the page leaves out of each class whose members it shows."""
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\.\. autoclass:: (\w+)\n((?:   .*\n)*)", text, re.MULTILINE)
    return {
        name: {*re.findall(r"\w+", options.partition("exclude-members:")[2])} | {*NOT_SHOWN}
        if "+" in options
        else {*NOT_SHOWN}
        for name, options in rows
        if ":no-members:" not in options
    }


def shown(name: str) -> list[str]:
    """Return the members of a class that the page shows if they have a docstring."""
    class_ = getattr(selectcache, name, None) or getattr(types, name)
    inherited = {member for base in BASES if issubclass(class_, base) for member in dir(base)}
    members = {
        member
        for base in class_.__mro__
        if base not in BASES
        for member in (*vars(base), *vars(base).get("__annotations__", ()))
    }
    return sorted(each for each in members - inherited - classes()[name] if not each.startswith("_"))


def test_the_members_of_each_class_are_listed() -> None:
    assert PUBLIC.keys() == classes().keys()


@each_row("name", PUBLIC)
def test_a_class_shows_its_public_members_and_no_others(name: str) -> None:
    """Is a new member public? Then write it into PUBLIC. If not, begin its name with an underscore."""
    assert shown(name) == PUBLIC[name].split()
