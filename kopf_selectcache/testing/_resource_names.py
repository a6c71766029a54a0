"""The names in requests: verbs, resources and rules. It never refuses a name that some request may have.

With a name that no request has, a test waits in vain, a fault never happens, and a permission has no effect:
all of it silently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.kinds import find, is_version, parse_key
from kopf_selectcache.selectors.signatures import near

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_METHODS: Mapping[str, str] = MappingProxyType({"post": "create", "put": "update"})
_PARTS = ("apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs")
_RULE = "{'apiGroups': [''], 'resources': ['pods'], 'verbs': ['list', 'watch']}"


def require_verb(verb: object) -> None:
    """Raise ValueError for a word that is no verb of RBAC."""
    if verb not in VERBS:
        raise ValueError(
            f"verb={shown(verb)} isn't a verb of requests.{_asking(_verb(verb))} The verbs are"
            f" {', '.join(VERBS)}"
        )


def require_resource(resource: object) -> None:
    """Raise ValueError for another name of a kind, where requests have its plural. Unknown plurals may be
    defined later.
    """
    if not isinstance(resource, str) or resource != (meant := _resource(resource)):
        meant = meant if isinstance(resource, str) else ""
        raise ValueError(
            f"resource={shown(resource)} isn't a resource in requests.{_asking(meant)} Write a plural in"
            " lower case, with the group of a custom resource: 'pods', 'pods/status', 'webapps.example.com'"
        )


def require_rules(rules: object) -> None:
    """Raise TypeError or ValueError for rules that give no permissions, because they are misspelt or
    incomplete.
    """
    if isinstance(rules, (str, Mapping)) or not isinstance(rules, Sequence):
        raise TypeError(f"rules are a list, such as [{_RULE}], not a {type(rules).__name__}")
    for rule in rules:
        if not isinstance(rule, Mapping):
            raise TypeError(f"a rule is a dict, such as {_RULE}, not a {type(rule).__name__}")
        _require_rule(rule)


def _require_rule(rule: Mapping[str, object]) -> None:
    parts: dict[str, Sequence[str]] = {}
    for part, words in rule.items():
        if part not in _PARTS:
            raise ValueError(
                f"a rule has no {shown(part)}.{_asking(near(str(part), _PARTS))} It has {', '.join(_PARTS)}"
            )
        if isinstance(words, str) or not isinstance(words, Sequence):
            instead = f"[{words!r}]" if isinstance(words, str) else "a list of texts"
            raise TypeError(
                f"the {part} of a rule are a list, not a {type(words).__name__}. Write {part!r}:"
                f" {clipped(instead, 100)}"
            )
        if other := [type(word).__name__ for word in words if not isinstance(word, str)]:
            raise TypeError(f"the {part} of a rule are texts, and one of them is of the type {other[0]}")
        parts[part] = words
    if not parts.get("verbs"):
        raise ValueError(f"a rule without verbs allows nothing. Write one such as {_RULE}")
    if not parts.get("nonResourceURLs") and not (parts.get("apiGroups") and parts.get("resources")):
        raise ValueError(
            "a rule without apiGroups or resources allows nothing. The core group is '': write one such as"
            f" {_RULE}"
        )
    for verb in parts["verbs"]:
        # Permissions have more verbs than requests, such as `bind`, and an authorizer accepts any: only
        # misspelt ones are refused.
        if verb not in VERBS and (meant := _verb(verb)):
            raise ValueError(f"the verb {shown(verb)} allows nothing.{_asking(meant)}")
    for resource in parts.get("resources", ()):
        _require_granted(resource, parts.get("apiGroups", ()))


def _require_granted(resource: str, groups: Sequence[str]) -> None:
    plural, dot, group = resource.partition("/")[0].partition(".")
    kind = find(plural)
    if dot:
        raise ValueError(
            f"the resource {shown(resource)} of a rule allows nothing. Write 'apiGroups': [{group!r}],"
            f" 'resources': [{plural!r}]"
        )
    if kind is not None and plural != kind.plural and (kind.group in groups or "*" in groups):
        raise ValueError(f"the resource {shown(resource)} of a rule allows nothing.{_asking(kind.plural)}")


def _verb(verb: object) -> str:
    """Return the intended verb, if one is similar."""
    word = str(verb)
    return _METHODS.get(word.lower()) or near(word, VERBS) or ""


def _resource(resource: str) -> str:
    """Return the intended resource: this one, if nothing is known of it; empty, if it cannot be one."""
    if "/" in resource:
        group, version, name = parse_key(resource)
        if (kind := find(resource)) is not None or is_version(
            version or ""
        ):  # As a key of a declaration: `v1/pods`.
            return kind.plural if kind is not None else f"{name}{f'.{group}' if group else ''}"
    first, slash, subresource = resource.partition("/")
    kind = find(first) or find(first.lower())
    group, version, name = parse_key(first)
    if kind is not None:
        name, group = kind.plural, kind.group if "." in first else None
    elif first != first.lower():
        return ""
    elif version is None:
        return resource
    return f"{name}{f'.{group}' if group else ''}{slash}{subresource}"


def _asking(meant: str | None) -> str:
    return f" Did you mean {meant!r}?" if meant else ""
