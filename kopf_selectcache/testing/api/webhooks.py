"""The configurations of admission webhooks: filled with defaults, and checked, as the server stores them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from kopf_selectcache.core.selection.values import is_dns_subdomain, is_label_key, is_label_value

from .history import Table
from .kinds import Served
from .metadata import KEY_NAME, LABEL_VALUE, SUBDOMAIN, StatusCause, cause, invalid_value, unsupported
from .status import not_implemented

GROUP = "admissionregistration.k8s.io"
VALIDATING: Table = (GROUP, "validatingwebhookconfigurations")
MUTATING: Table = (GROUP, "mutatingwebhookconfigurations")
TABLES = frozenset({VALIDATING, MUTATING})

_URL_FORM = "; desired format: https://host[/path]"
_DEFAULTS: Mapping[str, Any] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}
# The fields of a webhook, in the order of the server.
_FIELDS = (
    "name",
    "clientConfig",
    "rules",
    "failurePolicy",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
    "sideEffects",
    "timeoutSeconds",
    "admissionReviewVersions",
    "matchConditions",
)
_SUPPORTED: Mapping[str, Sequence[str]] = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "sideEffects": ("None", "NoneOnDryRun"),
    "reinvocationPolicy": ("IfNeeded", "Never"),
}
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_VERSIONS = ("v1", "v1beta1")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


# ---- Defaults.


def fill(served: Served, body: dict[str, Any]) -> None:
    """Add the defaults; drop what the server does not store."""
    hooks = body.pop("webhooks", None) or ()
    if filled := [_filled(served, hook or {}) for hook in hooks]:
        body["webhooks"] = filled


def _filled(served: Served, hook: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in hook.items() if value is not None}
    if known.get("matchConditions"):
        raise not_implemented("matchConditions of webhooks")
    config = {key: value for key, value in (known.get("clientConfig") or {}).items() if value is not None}
    if (service := config.get("service")) is not None:
        config["service"] = {"namespace": "", "name": "", "port": 443, **service}
    defaults = {**_DEFAULTS, "name": "", "admissionReviewVersions": None, **known, "clientConfig": config}
    if known.get("rules"):
        defaults["rules"] = [
            {**rule, "scope": rule.get("scope") or "*"} for rule in map(_mapping, known["rules"])
        ]
    fields: tuple[str, ...] = _FIELDS
    if served.table == MUTATING:
        defaults.setdefault("reinvocationPolicy", "Never")
        fields = (*fields, "reinvocationPolicy")
    return {key: defaults[key] for key in fields if key in defaults and defaults[key] != []}


def _mapping(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return value or {}


# ---- Checks.


def problems(body: Mapping[str, Any]) -> list[StatusCause]:
    """Return the errors of a configuration."""
    found: list[StatusCause] = []
    names: set[str] = set()
    for index, hook in enumerate(body.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        found += _versions(hook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions")
        found += _hook(hook, path)
        if hook["name"] in names:
            why = f'Duplicate value: "{hook["name"]}"'
            found.append(cause("FieldValueDuplicate", why, f"{path}.name"))
        names.add(hook["name"])
    return found


def _versions(versions: Sequence[str], path: str) -> Iterator[StatusCause]:
    listed = ", ".join(_VERSIONS)
    if not versions:
        yield _required(path, f"must specify one of {listed}")
    elif not {*versions} & {*_VERSIONS}:
        yield _invalid(path, versions, f"must include at least one of {listed}")


def _hook(hook: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    name = hook["name"]
    if not name:
        yield _required(f"{path}.name")
    elif not is_dns_subdomain(name):
        yield invalid_value(f"{path}.name", name, SUBDOMAIN)
    elif name.count(".") < 2:
        why = "should be a domain with at least three segments separated by dots"
        yield invalid_value(f"{path}.name", name, why)
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from _rule(rule, f"{path}.rules[{index}]")
    for key, supported in _SUPPORTED.items():
        if key == "sideEffects" and key not in hook:
            yield _required(f"{path}.{key}", f"must specify one of {', '.join(supported)}")
        elif key in hook and hook[key] not in supported:
            yield unsupported(f"{path}.{key}", hook[key], *supported)
    if not 1 <= hook["timeoutSeconds"] <= 30:
        why = "the timeout value must be between 1 and 30 seconds"
        yield invalid_value(f"{path}.timeoutSeconds", hook["timeoutSeconds"], why)
    for key in ("namespaceSelector", "objectSelector"):
        yield from _selector(hook[key], f"{path}.{key}")
    config = hook["clientConfig"]
    if ("url" in config) == ("service" in config):
        yield _required(f"{path}.clientConfig", "exactly one of url or service is required")
    elif "url" in config:
        yield from _url(config["url"], f"{path}.clientConfig.url")
    else:
        for key in ("name", "namespace"):
            if not config["service"][key]:
                yield _required(f"{path}.clientConfig.service.{key}")


def _rule(rule: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    for key, others in (
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ):
        values = rule.get(key) or ()
        if not values:
            yield _required(f"{path}.{key}")
        elif len(values) > 1 and "*" in values:
            yield _invalid(f"{path}.{key}", values, f"if '*' is present, must not specify other {others}")
        for index, value in enumerate(values):
            if key == "operations" and value not in _OPERATIONS:
                yield unsupported(f"{path}.{key}[{index}]", value, *_OPERATIONS)
            elif key == "apiVersions" and not value:
                yield _required(f"{path}.{key}[{index}]")
    yield from _resources(rule.get("resources") or (), f"{path}.resources")
    if rule["scope"] not in _SCOPES:
        yield unsupported(f"{path}.scope", rule["scope"], *_SCOPES)


def _resources(resources: Sequence[str], path: str) -> Iterator[StatusCause]:
    if not resources:
        yield _required(path)
    starred: set[str] = set()
    for index, resource in enumerate(resources):
        name, slash, sub = resource.partition("/")
        if not resource:
            yield _required(f"{path}[{index}]")
        elif slash and name in starred and sub != "*":
            why = f"if '{name}/*' is present, must not specify {resource}"
            yield _invalid(f"{path}[{index}]", resource, why)
        if sub == "*":
            starred.add(name)
    if len(resources) > 1 and "*/*" in resources:
        yield _invalid(path, resources, "if '*/*' is present, must not specify other resources")
    elif "*" in resources and any(item != "*" and "/" not in item for item in resources):
        why = "if '*' is present, must not specify other resources without subresources"
        yield _invalid(path, resources, why)


def _selector(selector: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    for key, value in (selector.get("matchLabels") or {}).items():
        if not is_label_key(key):
            yield invalid_value(f"{path}.matchLabels", key, KEY_NAME)
        if not is_label_value(value):
            yield invalid_value(f"{path}.matchLabels", value, LABEL_VALUE)
    for index, one in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        operator, values = one.get("operator", ""), one.get("values") or ()
        if operator not in _OPERATORS:
            yield invalid_value(f"{where}.operator", operator, "not a valid selector operator")
        elif operator in ("In", "NotIn") and not values:
            yield _required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            why = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield cause("FieldValueForbidden", why, f"{where}.values")
        if not is_label_key(one.get("key", "")):
            yield invalid_value(f"{where}.key", one.get("key", ""), KEY_NAME)
        for number, value in enumerate(values):
            if not is_label_value(value):
                yield invalid_value(f"{where}.values[{number}]", value, LABEL_VALUE)


def _url(url: str, path: str) -> Iterator[StatusCause]:
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError as error:
        yield _required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        yield invalid_value(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not host:
        yield invalid_value(path, host, f"host must be specified{_URL_FORM}")
    for value, what in (
        (parts.netloc.rpartition("@")[0], "user information is"),
        (parts.fragment, "fragments are"),
        (parts.query, "query parameters are"),
    ):
        if value:
            yield invalid_value(path, value, f"{what} not permitted in the URL")


def _required(path: str, why: str = "") -> StatusCause:
    return cause("FieldValueRequired", f"Required value{': ' if why else ''}{why}", path)


def _invalid(path: str, value: object, why: str) -> StatusCause:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return cause("FieldValueInvalid", f"Invalid value: {text}: {why}", path)
