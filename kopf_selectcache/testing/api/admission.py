"""Admission webhooks: those that a write concerns, their reviews, and the effect of their answers.

This module makes no calls. A write that needs an answer raises `NeedsReview` before it stores anything; the
server calls the webhooks, and repeats the write with the answers. An answer counts for the review that it was
given for: if the stored object has changed in the meantime, the webhook is called again, as by a real server
that repeats an update after a conflict.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from . import body as reading
from . import events, patches, types, webhooks
from .history import Change, History, ObjectKey
from .kinds import Kinds, Served
from .request import Call, User
from .selection import label_selector
from .status import Problem
from .strategies import not_base64

_NAMESPACES = ("", "namespaces")
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class WebhookCall:
    """One call of a webhook."""

    url: str
    bundle: bytes | None
    """The certificates, in PEM, that the webhook is trusted by; None for those of the machine."""
    timeout: int
    body: bytes


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """The answer to a call; `failure` says why there is none."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    failure: str = ""


Steps = Generator[Sequence[WebhookCall], Sequence[WebhookAnswer], T]
"""Work that yields calls of webhooks, and is sent their answers."""


class NeedsReview(Exception):
    """The write cannot go on before these webhooks have answered."""

    def __init__(self, calls: Mapping[bytes, WebhookCall]) -> None:
        super().__init__()
        self.calls = calls


@dataclass(frozen=True, slots=True)
class _Hook:
    """A webhook of one configuration."""

    name: str
    spec: Mapping[str, Any]
    mutates: bool
    in_namespace: Callable[[Mapping[str, str]], bool]
    of_object: Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class _Write:
    """The write that is reviewed."""

    operation: str
    served: Served
    namespace: str
    subresource: str
    new: Mapping[str, Any] | None
    old: Mapping[str, Any] | None
    name: str


class Webhooks:
    """The webhooks of the cluster, in the order in which they are called."""

    def __init__(self, history: History, kinds: Kinds) -> None:
        self._history = history
        self.kinds = kinds
        self.are_called = True
        """False for a cluster without a network: then no write is reviewed."""
        self._hooks: list[_Hook] | None = None
        history.subscribe(self._follow)

    def exist(self) -> bool:
        """Return True if a write may be reviewed."""
        return self.are_called and any(self._history.keys(table) for table in webhooks.TABLES)

    def forget(self) -> None:
        """Read the configurations again."""
        self._hooks = None

    def _follow(self, change: Change) -> None:
        if change.table in webhooks.TABLES:
            self.forget()

    def matching(self, write: _Write, *, mutating: bool) -> Iterator[tuple[_Hook, Served]]:
        """Yield the webhooks of this write, each with the resource in the version that it wants."""
        if not self.are_called or write.served.table in webhooks.TABLES:
            return
        if self._hooks is None:
            self._hooks = [*self._read(webhooks.MUTATING), *self._read(webhooks.VALIDATING)]
        for hook in self._hooks:
            if hook.mutates is mutating and (served := self._version_for(hook, write)) is not None:
                yield hook, served

    def _read(self, table: tuple[str, str]) -> Iterator[_Hook]:
        for key in self._history.keys(table):
            stored = self._history.get(table, key)
            assert stored is not None
            for spec in _decode(stored.data).get("webhooks", ()):
                yield _Hook(
                    spec["name"],
                    spec,
                    table == webhooks.MUTATING,
                    label_selector(spec["namespaceSelector"]),
                    label_selector(spec["objectSelector"]),
                )

    def _version_for(self, hook: _Hook, write: _Write) -> Served | None:
        labels = self._namespace_labels(write)
        if labels is not None and not hook.in_namespace(labels):
            return None
        objects = [obj for obj in (write.new, write.old) if obj is not None]
        if hook.spec["objectSelector"] and not any(hook.of_object(_labels(obj)) for obj in objects):
            return None
        same = [write.served]
        if hook.spec["matchPolicy"] == "Equivalent":
            same += (
                other for other in self.kinds if other.table == write.served.table and other != write.served
            )
        for served in same:
            if any(_matches(rule, write, served) for rule in hook.spec.get("rules", ())):
                return served
        return None

    def _namespace_labels(self, write: _Write) -> Mapping[str, str] | None:
        """Return the labels of the namespace, or of the object if it is one; None if there is none."""
        if write.served.table == _NAMESPACES and write.new is not None and not write.subresource:
            return _labels(write.new)
        home = self._history.get(_NAMESPACES, ("", write.namespace)) if write.namespace else None
        return None if home is None else home.labels

    def service_failure(self, namespace: str, name: str) -> str:
        """Return the error of calling a service: there is no network that leads to one."""
        if self._history.get(("", "services"), (namespace, name)) is None:
            return f'service "{name}" not found'
        return f'no endpoints available for service "{name}"'


@dataclass(slots=True)
class Admission:
    """The admission of one request. It stays the same while the request is repeated."""

    webhooks: Webhooks
    new_uid: Callable[[], str]
    user: User = field(default_factory=lambda: User(""))
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the write, as the webhooks see them."""
    answers: dict[bytes, WebhookAnswer] = field(default_factory=dict)
    """By their reviews."""
    warnings: dict[str, None] = field(default_factory=dict)
    _uids: dict[bytes, str] = field(default_factory=dict)
    _kept: dict[str, str] = field(default_factory=dict)

    def begin(self, user: User, call: Call, body: Mapping[str, Any] | None = None) -> None:
        """Begin a write, or repeat it; a deletion has its options in a body."""
        self.user = user
        self.warnings.clear()
        given = {
            key: call.options[key] for key in ("fieldManager", "fieldValidation") if call.options.get(key)
        }
        dry = {"dryRun": ["All"]} if call.options.get("dryRun") else {}
        self.options = {**dry, **given} if body is None else dict(body)

    def keep(self, word: str, make: Callable[[], str]) -> str:
        """Return a value of the new object, the same one each time that the request is repeated."""
        if word not in self._kept:
            self._kept[word] = make()
        return self._kept[word]

    # ---- The reviews of one write.

    def mutate(
        self,
        operation: str,
        served: Served,
        namespace: str,
        new: Mapping[str, Any],
        old: Mapping[str, Any] | None,
        *,
        subresource: str = "",
    ) -> Mapping[str, Any]:
        """Return the object as the mutating webhooks change it; the same one if none does."""
        write = self._write(operation, served, namespace, subresource, new, old)
        name = write.name
        called: list[str] = []
        again: set[str] = set()
        for second in (False, True):
            for hook, wanted in self.webhooks.matching(write, mutating=True):
                place = f"{hook.name}/{hook.spec}"
                if second and place not in again:
                    continue
                changed = self._mutated(hook, wanted, write)
                if changed is not None:
                    again.update(called)
                    write = self._write(operation, served, namespace, subresource, changed, old, name=name)
                    assert write.new is not None
                    new = write.new
                if hook.spec["reinvocationPolicy"] == "IfNeeded":
                    called.append(place)
        return new

    def validate(
        self,
        operation: str,
        served: Served,
        namespace: str,
        new: Mapping[str, Any] | None,
        old: Mapping[str, Any] | None,
        *,
        subresource: str = "",
        named: bool = True,
    ) -> None:
        """Raise a Problem if a validating webhook denies the write. All are called at once."""
        write = self._write(operation, served, namespace, subresource, new, old, name=None if named else "")
        hooks = list(self.webhooks.matching(write, mutating=False))
        missing: dict[bytes, WebhookCall] = {}
        problems = []
        for hook, wanted in hooks:
            try:
                self._review(hook, wanted, write)
            except NeedsReview as needed:
                missing |= needed.calls
            except Problem as problem:
                problems.append(problem)
        if missing:
            raise NeedsReview(missing)
        if problems:
            raise problems[0]

    def delete(self, served: Served, key: ObjectKey, old: Mapping[str, Any], *, named: bool = True) -> None:
        """Review a deletion, by webhooks of both kinds. Those of many are without a name."""
        write = self._write("DELETE", served, key[0], "", None, old, name=None if named else "")
        for hook, wanted in self.webhooks.matching(write, mutating=True):
            self._mutated(hook, wanted, write)
        self.validate("DELETE", served, key[0], None, old, named=named)

    def concerns(self, served: Served, namespace: str, subresource: str) -> bool:
        """Return True if a webhook reviews updates of a subresource."""
        write = self._write("UPDATE", served, namespace, subresource, {}, {}, name="")
        return any(
            next(self.webhooks.matching(write, mutating=mutating), None) is not None
            for mutating in (True, False)
        )

    # ---- Calls and answers.

    def _write(
        self,
        operation: str,
        served: Served,
        namespace: str,
        subresource: str,
        new: Mapping[str, Any] | None,
        old: Mapping[str, Any] | None,
        *,
        name: str | None = None,
    ) -> _Write:
        if name is None:
            obj = new if new is not None else old
            name = ((obj or {}).get("metadata") or {}).get("name", "")
        if served.table == _NAMESPACES:
            namespace = name
        return _Write(operation, served, namespace, subresource, new, old, name)

    def _mutated(self, hook: _Hook, wanted: Served, write: _Write) -> Mapping[str, Any] | None:
        """Call a mutating webhook; return the changed object, or None if it is not changed."""
        patch = self._review(hook, wanted, write)
        if not patch:
            return None
        shown = None if write.new is None else _shown(wanted, write.new)
        try:
            changed = patched(hook.name, patch, shown, wanted)
        except Failure as failed:
            self._failed(hook, str(failed))
            return None
        if changed is None:
            return None
        back = {**changed, "kind": write.served.kind, "apiVersion": write.served.api_version}
        return events.to_regarding(events.to_involved(back)) if write.served.group == events.GROUP else back

    def _review(self, hook: _Hook, wanted: Served, write: _Write) -> bytes:
        """Return the patch in the answer of a webhook; raise a Problem if it denies the write."""
        try:
            response = self._answered(hook, wanted, write)
        except Failure as failed:
            self._failed(hook, str(failed))
            return b""
        for warning in response.get("warnings") or ():
            self.warnings[warning] = None
        if response.get("allowed") is not True:
            raise denial(hook.name, response.get("status"))
        patch = base64.b64decode(response.get("patch") or "")
        if patch and response.get("patchType", "JSONPatch") != "JSONPatch":
            self._failed(hook, f'unsupported patch type "{response["patchType"]}"')
            return b""
        return patch

    def _answered(self, hook: _Hook, wanted: Served, write: _Write) -> dict[str, Any]:
        """Return the answer of a webhook; raise NeedsReview if it has not been asked."""
        version = next(word for word in hook.spec["admissionReviewVersions"] if word in ("v1", "v1beta1"))
        request = self._request(wanted, write)
        key = _canonical([hook.name, hook.spec, request])
        url = self._url(hook)
        given = hook.spec["clientConfig"].get("caBundle")
        bundle = None if given is None else base64.b64decode(given)
        if bundle is not None and b"-----BEGIN CERTIFICATE-----" not in bundle:
            raise Failure(
                "could not get REST client: unable to load root certificates: unable to parse bytes as PEM"
                " block"
            )
        if key not in self.answers:
            uid = self._uids[key] = self.new_uid()
            review = {
                "kind": "AdmissionReview",
                "apiVersion": f"{REVIEW_GROUP}/{version}",
                "request": {"uid": uid, **request},
            }
            call = WebhookCall(url, bundle, hook.spec["timeoutSeconds"], _encode(review))
            raise NeedsReview({key: call})
        answer = self.answers[key]
        if answer.failure:
            raise Failure(f'failed to call webhook: Post "{url}": {answer.failure}')
        return read_answer(answer, version, self._uids[key], mutates=hook.mutates)

    def _failed(self, hook: _Hook, why: str) -> None:
        """Raise InternalError for a webhook that cannot be used, unless it may be ignored."""
        if hook.spec["failurePolicy"] == "Fail":
            raise internal(f'failed calling webhook "{hook.name}": {why}')

    def _url(self, hook: _Hook) -> str:
        config = hook.spec["clientConfig"]
        ending = f"?timeout={hook.spec['timeoutSeconds']}s"
        if (service := config.get("service")) is not None:
            path = (service.get("path") or "").lstrip("/")
            host = f"{service['name']}.{service['namespace']}.svc:{service['port']}"
            why = self.webhooks.service_failure(service["namespace"], service["name"])
            raise Failure(f'failed to call webhook: Post "https://{host}/{path}{ending}": {why}')
        url: str = config["url"]
        return (url if "/" in url.removeprefix("https://") else f"{url}/") + ending

    def _request(self, wanted: Served, write: _Write) -> dict[str, Any]:
        served, user = write.served, self.user
        sub = {"subResource": write.subresource} if write.subresource else {}
        request_sub = {"requestSubResource": write.subresource} if write.subresource else {}
        return {
            "kind": {"group": wanted.group, "version": wanted.version, "kind": wanted.kind},
            "resource": {"group": wanted.group, "version": wanted.version, "resource": wanted.plural},
            **sub,
            "requestKind": {"group": served.group, "version": served.version, "kind": served.kind},
            "requestResource": {
                "group": served.group,
                "version": served.version,
                "resource": served.plural,
            },
            **request_sub,
            **({"name": write.name} if write.name else {}),
            **({"namespace": write.namespace} if write.namespace else {}),
            "operation": write.operation,
            "userInfo": {
                "username": user.name,
                **({"uid": user.uid} if user.uid else {}),
                "groups": list(user.groups),
                **(
                    {"extra": {key: list(values) for key, values in user.extra.items()}} if user.extra else {}
                ),
            },
            "object": _shown(wanted, write.new),
            "oldObject": _shown(wanted, write.old),
            "dryRun": bool(self.options.get("dryRun")),
            "options": {
                "kind": _OPTIONS[write.operation],
                "apiVersion": "meta.k8s.io/v1",
                **{key: value for key, value in self.options.items() if key not in ("kind", "apiVersion")},
            },
        }


def finish(steps: Steps[T]) -> T:
    """Do the work that calls no webhook; raise RuntimeError if it has to."""
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError(
        "a webhook is to review this write, and only a cluster that runs in another thread can call it:"
        " write by HTTP, or use EmbeddedCluster().in_thread()"
    )


def _shown(wanted: Served, obj: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return an object in the version that a webhook wants."""
    if obj is None:
        return None
    if wanted.table == events.TABLE:
        obj = events.to_regarding(obj) if wanted.group == events.GROUP else events.to_involved(obj)
    return {**obj, "kind": wanted.kind, "apiVersion": wanted.api_version}


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _matches(rule: Mapping[str, Any], write: _Write, served: Served) -> bool:
    if rule["scope"] != "*" and (rule["scope"] == "Namespaced") is not served.namespaced:
        return False
    return (
        not {"*", write.operation}.isdisjoint(rule["operations"])
        and not {"*", served.group}.isdisjoint(rule["apiGroups"])
        and not {"*", served.version}.isdisjoint(rule["apiVersions"])
        and any(
            name in ("*", served.plural) and sub in ("*", write.subresource)
            for name, _, sub in (resource.partition("/") for resource in rule["resources"])
        )
    )


# ---- Answers of webhooks: read, checked, and applied, in the words of the real server.

REVIEW_GROUP = "admission.k8s.io"
_RESPONSE: types.Fields = {"response": "v1.AdmissionResponse"}
# The words of Kubernetes' client for responses without a Status.
_REFUSALS: Mapping[int, str] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: (
        "the server was unable to return a response in the time allotted, but may still be processing the"
        " request"
    ),
}


class Failure(Exception):
    """A webhook was not called, or its answer cannot be used."""


def read_answer(answer: WebhookAnswer, version: str, uid: str, *, mutates: bool) -> dict[str, Any]:
    """Read the answer of a webhook; raise Failure if it is no valid AdmissionReview."""
    if not 200 <= answer.code < 300:
        raise Failure(f"failed to call webhook: {_refusal(answer)}")
    if not answer.body:
        raise Failure(
            f"failed to call webhook: 0-length response with status code: {answer.code} and content type:"
            f" {answer.content_type}"
        )
    try:
        review = reading.decode(answer.body)
    except reading.UnreadableBody as error:
        why = f"couldn't get version/kind; json parse error: {error}"
        raise Failure(f"failed to call webhook: {why}") from None
    if not isinstance(review, dict) or (why := types.misfit(review, types.TYPE, "struct { }")):
        raise Failure("failed to call webhook: couldn't get version/kind; json parse error: no object")
    api_version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    other = {"v1": "v1beta1", "v1beta1": "v1"}[version]
    if (api_version, kind) == (f"{REVIEW_GROUP}/{other}", "AdmissionReview"):
        why = f"converting ({other}.AdmissionReview) to ({version}.AdmissionReview): unknown conversion"
        raise Failure(f"failed to call webhook: {why}")
    if (api_version or kind) and (api_version, kind) != (f"{REVIEW_GROUP}/{version}", "AdmissionReview"):
        why = f'no kind "{kind}" is registered for version "{api_version}"'
        why += ' in scheme "pkg/runtime/scheme.go:111"'
        raise Failure(f"failed to call webhook: {why}")
    if why := types.misfit(review, _RESPONSE, "v1.AdmissionReview"):
        raise Failure(f"failed to call webhook: {why}")
    response: dict[str, Any] | None = review.get("response")
    found = _invalid_answer(response, version, uid, is_typed=bool(api_version or kind), mutates=mutates)
    if found or response is None:
        raise Failure(f"received invalid webhook response: {found}")
    if (at := not_base64(response.get("patch") or "")) is not None:
        raise Failure(f"failed to call webhook: illegal base64 data at input byte {at}")
    return response


def _invalid_answer(
    response: Mapping[str, Any] | None, version: str, uid: str, *, is_typed: bool, mutates: bool
) -> str:
    if response is None:
        return "webhook response was absent"
    patch, patch_type = response.get("patch"), response.get("patchType")
    if version == "v1":
        if response.get("uid", "") != uid:
            return f'expected response.uid="{uid}", got "{response.get("uid", "")}"'
        if not is_typed:
            return f"expected webhook response of {REVIEW_GROUP}/v1, Kind=AdmissionReview, got /, Kind="
        if not mutates:
            found = [key for key in ("patch", "patchType") if response.get(key)]
            return f"validating webhook may not return response.{found[0]}" if found else ""
        if patch and patch_type is None:
            return "webhook returned response.patch but not response.patchType"
        if not patch and patch_type is not None:
            return "webhook returned response.patchType but not response.patch"
    return ""


def _refusal(answer: WebhookAnswer) -> str:
    try:
        status = reading.decode(answer.body)
    except reading.UnreadableBody:
        status = None
    if isinstance(status, dict) and (status.get("kind"), status.get("status")) == ("Status", "Failure"):
        return str(status.get("message") or "unknown")
    if answer.code in _REFUSALS:
        return _REFUSALS[answer.code]
    is_text = answer.content_type.startswith("text/")
    text = _encode(answer.body.decode(errors="replace").strip() if is_text else "unknown").decode()
    return f"an error on the server ({text}) has prevented the request from succeeding"


def denial(name: str, status: Mapping[str, Any] | None) -> Problem:
    status = status or {}
    denied = f'admission webhook "{name}" denied the request'
    message, reason = status.get("message") or "", status.get("reason") or ""
    text = f"{denied}: {message or reason}" if message or reason else f"{denied} without explanation"
    return Problem(max(400, status.get("code") or 0), reason, text, details=status.get("details"))


def internal(why: str) -> Problem:
    return Problem(
        500,
        "InternalError",
        f"Internal error occurred: {why}",
        details={"causes": [{"message": why}]},
    )


# ---- Patches.


def patched(hook: str, patch: bytes, obj: Mapping[str, Any] | None, served: Served) -> dict[str, Any] | None:
    """Return the object with the patch of a webhook; None if the patch changes nothing."""
    try:
        steps = reading.decode(patch)
    except reading.UnreadableBody as error:
        raise Failure(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(steps, list) or any(not isinstance(step, dict) for step in steps):
        wrong = next((step for step in steps if not isinstance(step, dict)), None) if steps else None
        kind = types.json_type(steps if not isinstance(steps, list) else wrong)
        wanted = "Patch" if not isinstance(steps, list) else "Operation"
        raise Failure(
            f"received undecodable patch in webhook response: json: cannot unmarshal {kind} into Go value of"
            f" type jsonpatch.{wanted}"
        )
    if not steps:
        return None
    if obj is None:
        raise internal(
            f'admission webhook "{hook}" attempted to modify the object, which is not supported for this'
            " operation"
        )
    changed: dict[str, Any] = copy.deepcopy(dict(obj))
    for step in steps:
        try:
            changed = patches.read(_encode([step]), patches.JSON, served)(changed)
        except Problem:
            raise internal(_step_error(step, changed)) from None
    for key in ("kind", "apiVersion"):
        if changed.get(key) != obj[key]:
            versions = [
                str(body.get("apiVersion")).rpartition("/")[2] + f".{body.get('kind')}"
                for body in (changed, obj)
            ]
            raise Problem(500, "", f"converting ({versions[0]}) to ({versions[1]}): unknown conversion")
    return None if _canonical(changed) == _canonical(obj) else changed


def _step_error(step: Mapping[str, Any], obj: Any) -> str:
    """Return the error of the server's library for a step that does not apply."""
    op, path = step.get("op"), step.get("path")
    if op not in ("add", "replace", "remove", "move", "copy", "test"):
        return f"Unexpected kind: {op}"
    if not isinstance(path, str):
        return f"{op} operation failed to decode path: missing value"
    place = str(step.get("from")) if op in ("move", "copy") else path
    *above, key = place.split("/")[1:] or [""]
    home = obj
    for name in above:
        if isinstance(home, list):
            home = home[int(name)] if name.isdecimal() and int(name) < len(home) else None
        else:
            home = home.get(name) if isinstance(home, dict) else None
    is_missing = not isinstance(home, dict | list) or not place.startswith("/")
    missing = {
        "add": f'add operation does not apply: doc is missing path: "{place}": missing value',
        "remove": f'remove operation does not apply: doc is missing path: "{place}": missing value',
        "replace": f"replace operation does not apply: doc is missing path: {place}: missing value",
        "move": f"move operation does not apply: doc is missing from path: {place}: missing value",
        "copy": f"copy operation does not apply: doc is missing from path: {place}: missing value",
        "test": f"test operation does not apply: is missing path: {place}: missing value",
    }
    if is_missing or op == "copy":
        return missing[op]
    if op == "test":
        return f"testing value {place} failed: test failed"
    if op == "replace":
        return f"replace operation does not apply: doc is missing key: {place}: missing value"
    where = key if op == "move" else place
    if isinstance(home, list):
        why = f"Unable to access invalid index: {key}: invalid index referenced"
    else:
        why = f"Unable to remove nonexistent key: {key}: missing value"
    return f"error in {op} for path: '{where}': {why}"
