"""The embedded API: authentication, authorization, routing, and the response. The rules are in
other modules.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from . import body as reading
from . import (
    deletion,
    discovery,
    managed_fields,
    metadata,
    options,
    patches,
    representations,
    reviews,
    routing,
    types,
)
from . import selection as selecting
from .admission import Admission, NeedsReview, Steps, Webhooks, finish
from .garbage import Collector
from .history import History, ObjectKey, Stored
from .kinds import Kinds, Served
from .kubectl import openapi, protobuf, scales
from .managed_fields import Writer
from .objects import How, Objects, typed
from .options import ListOptions
from .rbac import Rbac, Url, create_default_roles
from .representations import View
from .request import JSON, Answer, Call, Request, User
from .reviews import Reviews
from .selection import Selection, page
from .status import (
    Problem,
    bad_request,
    invalid,
    method_not_allowed,
    no_such_path,
    not_implemented,
    too_large,
    unsupported_media_type,
)
from .users import Impersonation, Users
from .watching import Watch, Watches

TEXT = "text/plain; charset=utf-8"
VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
"""The version that it reports: clients choose their requests by it."""
_HEALTH = frozenset({"healthz", "livez", "readyz"})
_CHECKS = frozenset({"", "ping", "log", "etcd"})
_JUDGING = ("", "Ignore", "Strict", "Warn")  # The treatments of unknown fields.
_WRITING = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
# The order in which Go's decoder reports errors.
_TYPE = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_NOWHERE = Answer(404, b"404 page not found\n", TEXT)
_DELETING: Mapping[str, Callable[[str], object]] = {
    "propagationPolicy": str,
    "gracePeriodSeconds": options.integer,
    "orphanDependents": options.is_true,
}


class Api:
    """The API of one cluster: a request in, a response or a watch out.

    `now` is the time, `new_uid` makes unique texts, and `suffix` the letters of generated names. With
    `sharded_lists`, it has the feature gate `ShardedListAndWatch`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], dt.datetime],
        new_uid: Callable[[], str],
        suffix: Callable[[], str],
        admin_token: str,
        garbage_collection: bool = True,
        sharded_lists: bool = False,
    ) -> None:
        self.sharded_lists = sharded_lists
        self.history = History()
        self.kinds = Kinds()
        self.objects = Objects(self.history, self.kinds, now=now, new_uid=new_uid, suffix=suffix)
        self.users = Users(self.objects, self.kinds, admin_token=admin_token, new_token=new_uid, now=now)
        self.rbac = Rbac(self.objects, self.kinds)
        self.watches = Watches(self.history, self.kinds)
        self._now = now
        self._impersonation = Impersonation(self.rbac)
        self._reviews = Reviews(self.users, self.rbac, now=now)
        create_default_roles(self.objects, self.kinds)
        self._collector = Collector(self.objects, self.kinds) if garbage_collection else None
        self.webhooks = Webhooks(self.history, self.kinds)
        self._new_uid = new_uid

    def answer(self, request: Request, *, seen: int | None = None, collect: bool = True) -> Answer | Watch:
        """Execute a request that no webhook is to review; raise RuntimeError if one is."""
        return finish(self.answering(request, seen=seen, collect=collect))

    def answering(
        self, request: Request, *, seen: int | None = None, collect: bool = True
    ) -> Steps[Answer | Watch]:
        """Execute a request, and collect the garbage that it leaves; yield the webhooks to call.

        With `seen`, lists and watches know no later version, as of a lagging replica.
        """
        admission = Admission(self.webhooks, self._new_uid)
        while True:
            try:
                answer = self._answer(request, seen, admission if self.webhooks.exist() else None)
            except NeedsReview as needed:
                answers = yield tuple(needed.calls.values())
                admission.answers.update(zip(needed.calls, answers, strict=True))
                continue
            except Problem as problem:
                answer = refusal(problem)
            if isinstance(answer, Answer):
                answer = _warned(answer, admission.warnings)
            if collect:
                self.collect()
            return answer

    def collect(self) -> None:
        """Let the garbage collector run until it has nothing to do."""
        if self._collector is not None:
            self._collector.run()

    def restored(self) -> None:
        """Read again what is derived from the history, after it has been restored."""
        self.objects.restored()
        self.rbac.forget()
        self.webhooks.forget()
        if self._collector is not None:
            self._collector.reload()

    def _answer(self, request: Request, seen: int | None, admission: Admission | None) -> Answer | Watch:
        user = self.users.authenticate(request.headers)
        call = routing.read(request)
        if call is None or call.verb != "watch":
            options.check_timeout(request.query)
        verb = request.method.lower()
        user = self._impersonation.effective(user, request.headers, call or Url(verb, request.path))
        if call is None:
            self.rbac.require_url(user, verb, request.path)
            return self._path(request)
        self.rbac.require(user, call)
        if (call.group, call.subresource or call.resource) in reviews.KINDS:
            return self._review(user, call, request)
        if not self._has_group(call):
            return _NOWHERE
        served = routing.find(call, self.kinds)
        if admission is not None:
            admission.begin(user, call)
        if call.subresource == scales.SUBRESOURCE:
            is_reviewed = admission is not None and admission.concerns(
                served, call.namespace, call.subresource
            )
            if call.verb != "get" and is_reviewed:
                raise not_implemented(f"webhooks for {call.resource}/{call.subresource}")
            return self._scale(call, served, request)
        form = representations.accepted(
            request.headers.get("accept", ""),
            included=request.query.get("includeObject", ""),
            watch=call.verb == "watch",
        )
        return self._resource(user, call, View(served, form, self._now), request, seen, admission)

    # ---- Paths that are no resource.

    def _path(self, request: Request) -> Answer:
        word, _, rest = request.path.strip("/").partition("/")
        if word in _HEALTH and rest in _CHECKS:
            return Answer(200, b"ok", TEXT)
        if word == "api" and rest not in ("", "v1"):
            raise no_such_path()
        accept = request.headers.get("accept", "")
        found: Answer | None
        if request.path.strip("/") == "version":
            found = Answer.of(VERSION, end=b"")
        elif request.path == "/":
            found = Answer.of({"paths": discovery.paths(self.kinds)})
        else:
            found = discovery.answer(request.path, accept, self.kinds) or openapi.answer(
                request.path, accept, self.kinds
            )
        if found is None:
            return _NOWHERE
        if request.method != "GET":
            raise method_not_allowed()
        return found

    def _has_group(self, call: Call) -> bool:
        """Return True if the server itself knows the group or, for the group of a definition, the resource.

        Then a missing object is reported with a Status, and otherwise in plain text.
        """
        if self.kinds.find(call.group, call.version, call.resource) or call.group in (
            group for group, _ in reviews.KINDS
        ):
            return True
        return any(served.group == call.group and not served.custom for served in self.kinds)

    def _review(self, user: User, call: Call, request: Request) -> Answer:
        if call.verb != "create":
            raise method_not_allowed()
        return self._reviews.answer(
            user, call, _body(request, reviews.KINDS[call.group, call.subresource or call.resource])
        )

    # ---- Resources.

    def _resource(
        self,
        user: User,
        call: Call,
        view: View,
        request: Request,
        seen: int | None,
        admission: Admission | None,
    ) -> Answer | Watch:
        served = view.served
        match call.verb:
            case "list" | "watch":
                return self._many(call, view, seen)
            case "get":
                self._require_seen(call)
                return _shown(view, self.objects.get(served, call.namespace, call.name))
            case "deletecollection":
                return self._delete_many(call, view, request, admission)
            case "delete":
                return self._delete(call, view, request, admission)
            case _:
                return self._write(user, call, view, request, admission)

    def _write(
        self, user: User, call: Call, view: View, request: Request, admission: Admission | None
    ) -> Answer:
        served, place = view.served, (call.namespace, call.name)
        applies = call.verb == "patch" and _media_type(request) == patches.APPLY
        dry_run = _is_dry(call, _WRITING[call.verb], applies=applies)
        judging = _Judging(call.options.get("fieldValidation", ""))
        how = How(dry_run, judging.judge, admission, _writer(call, request))
        is_there = self.history.get(served.table, place) is not None
        if applies:
            sent = reading.read(request.body)
            judging.judge_keys(request.body)
            if not is_there and not call.subresource:
                self.rbac.require(user, replace(call, verb="create"))
            force = options.is_true(call.options.get("force"))
            stored = self.objects.apply(served, *place, sent, replace(how, unknown=types.ignore), force=force)
        elif call.verb == "create":
            stored = self.objects.create(served, call.namespace, _body(request, served.kind), how)
        elif call.verb == "update":
            stored = self.objects.update(served, *place, _body(request, served.kind), how)
        else:
            content_type = request.headers.get("content-type", "")
            stored = self.objects.patch(served, *place, request.body, content_type, how)
        return judging.warned(_shown(view, stored, code=200 if is_there else 201))

    def _scale(self, call: Call, served: Served, request: Request) -> Answer:
        """Read or change the number of replicas, in the form that all kinds with replicas share."""
        old = self.objects.get(served, call.namespace, call.name)
        if call.verb == "get":
            return Answer.of(scales.shown(old))
        if call.verb == "update":
            sent = _body(request, scales.KIND)
        else:
            sent = scales.patched(served, old, request.body, request.headers.get("content-type", ""))
        body = scales.changed(served, old, sent)
        how = How(_is_dry(call, _WRITING[call.verb]), writer=_writer(call, request))
        return Answer.of(scales.shown(self.objects.update(served, call.namespace, call.name, body, how)))

    def _many(self, call: Call, view: View, seen: int | None) -> Answer | Watch:
        asked = options.read(call.options, watch=call.verb == "watch")
        selection = self._selection(call, view)
        if asked.watch:
            return Watch(self.watches, view, selection, asked, seen=seen)
        listed = page(self.history, view.served, selection, asked, seen=seen)
        return _json(200, view.many(listed, shards=selection.shards))

    def _selection(self, call: Call, view: View) -> Selection:
        return selecting.read(view.served, call.namespace, call.options, sharded=self.sharded_lists)

    def _require_seen(self, call: Call) -> None:
        """Refuse to read an object as of a future version."""
        asked = ListOptions(watch=True, version=call.options.get("resourceVersion", "")).number()
        if asked > self.history.version:
            raise too_large(asked, self.history.version)

    def _delete(self, call: Call, view: View, request: Request, admission: Admission | None) -> Answer:
        served = view.served
        wish = _deleting(request)
        dry_run = _is_dry(call, "DeleteOptions", wish)
        if admission is not None:
            admission.begin(admission.user, call, wish)
        stored, gone = self.objects.delete(
            served, call.namespace, call.name, wish, dry_run=dry_run, admission=admission
        )
        if not gone or served.shows_deleted:
            return _shown(view, stored)
        details = (
            {"name": call.name}
            | ({"group": served.group} if served.group else {})
            | {"kind": served.plural, "uid": stored.uid}
        )
        return Answer.of(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    def _delete_many(self, call: Call, view: View, request: Request, admission: Admission | None) -> Answer:
        """Delete the objects that a list with these options would show, and return that list."""
        served = view.served
        wish = _deleting(request)
        dry_run = _is_dry(call, "DeleteOptions", wish)
        asked = options.read(call.options, watch=False)
        selection = self._selection(call, view)
        listed = page(self.history, served, selection, asked)
        answer = _json(200, view.many(listed, shards=selection.shards))  # First, because it may be refused.
        keys, denied = {stored.key for stored in listed.items}, None
        if admission is not None:
            admission.begin(admission.user, call, wish)
            keys, denied = _reviewed(admission, served, listed.items)
        if not dry_run:
            self.objects.delete_collection(served, call.namespace, lambda stored: stored.key in keys, wish)
        if denied is not None:
            raise denied
        return answer


class _Judging:
    """The treatment of unknown fields: that of the request, or else a warning."""

    def __init__(self, judging: str) -> None:
        self._judging = judging
        self._warnings: list[str] = []

    def judge(self, served: Served, paths: Sequence[str]) -> None:
        if self._judging == "Strict":
            types.refuse(served, paths)
        elif self._judging != "Ignore":
            self._warn(map(types.unknown_field, paths))

    def judge_keys(self, data: bytes) -> None:
        """Treat keys that come twice in an applied object as unknown fields are treated elsewhere."""
        if self._judging == "Strict":
            reading.refuse_doubled(reading.doubled(data))
        elif self._judging != "Ignore":
            self._warn(reading.doubled(data))

    def _warn(self, lines: Iterable[str]) -> None:
        self._warnings += lines

    def warned(self, answer: Answer) -> Answer:
        return _warned(answer, self._warnings)


def _reviewed(
    admission: Admission, served: Served, found: Sequence[Stored]
) -> tuple[set[ObjectKey], Problem | None]:
    """Review the deletion of many, before the first deletion; return those before the first that is denied,
    and the denial.
    """
    keys: set[ObjectKey] = set()
    for stored in found:
        try:
            admission.delete(served, stored.key, typed(served, stored.data), named=False)
        except Problem as problem:
            return keys, problem
        keys.add(stored.key)
    return keys, None


def _warned(answer: Answer, warnings: Iterable[str]) -> Answer:
    """Return the response with the warnings, in the header that kubectl shows."""
    told = [f"299 - {msgspec.json.encode(warning).decode()}" for warning in warnings]
    if not told:
        return answer
    before = [answer.headers["Warning"]] if "Warning" in answer.headers else []
    return replace(answer, headers={**answer.headers, "Warning": ", ".join(before + told)})


def refusal(problem: Problem) -> Answer:
    """Return the response of a refusal."""
    answer = Answer.of(problem.status(), code=problem.code)
    after = (problem.details or {}).get("retryAfterSeconds")
    return replace(answer, headers={"Retry-After": str(after)}) if after else answer


def _shown(view: View, stored: Stored, *, code: int = 200) -> Answer:
    return _json(code, view.one(stored))


def _json(code: int, body: bytes) -> Answer:
    return Answer(code, body + b"\n")


def _body(request: Request, kind: str) -> Mapping[str, Any]:
    """Read the object of a body; raise 400 if it is none, and 415 if it is not JSON."""
    if (sent := _sent_as_protobuf(request)) is not None:
        return sent
    try:
        return _typed(request.body)
    except reading.UnreadableBody as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json"
            f" parse error: {error} ({reading.summary(request.body)})"
        ) from None


def _typed(data: bytes) -> dict[str, Any]:
    """Read an object whose kind and apiVersion, if present, are texts."""
    body = reading.decode(data)
    if why := types.misfit(body, types.TYPE, _TYPE):
        raise reading.UnreadableBody(why)
    return dict(body or {})


def _sent_as_protobuf(request: Request) -> dict[str, Any] | None:
    """Read a protobuf body; None if it is JSON; raise 415 if it is neither."""
    given = request.headers.get("content-type", "").partition(";")[0].strip()
    if given == protobuf.MEDIA_TYPE:
        return protobuf.decode(request.body)
    if given not in ("", JSON):
        raise unsupported_media_type(given, [JSON, protobuf.MEDIA_TYPE])
    return None


def _deleting(request: Request) -> dict[str, Any]:
    """Read the options of a deletion: from the body, if there is one, and otherwise from the query."""
    if request.body:
        body = _sent_as_protobuf(request)
        try:
            body = _typed(request.body) if body is None else body
        except reading.UnreadableBody as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
        kind = body.get("kind") or "DeleteOptions"
        if kind != "DeleteOptions":
            raise bad_request(
                f'no kind "{kind}" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"'
            )
        if why := types.misfit(body, types.DELETE_OPTIONS, "v1.DeleteOptions"):
            raise bad_request(why)
        return body
    query = request.query
    found = {key: read(query[key]) for key, read in _DELETING.items() if key in query}
    return found | ({"dryRun": [query["dryRun"]]} if query.get("dryRun") else {})


def _writer(call: Call, request: Request) -> Writer:
    named = call.options.get("fieldManager", "")
    return Writer(named, request.headers.get("user-agent", ""), call.subresource)


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip()


def _is_dry(call: Call, kind: str, wish: Mapping[str, Any] | None = None, *, applies: bool = False) -> bool:
    """Read whether the write is a dry run; raise 422 if that, the manager of the fields, or the treatment of
    unknown fields, is invalid.
    """
    if wish is None:
        asked = [text for text in [call.options.get("dryRun", "")] if text]
    else:
        asked = [text or "" for text in wish.get("dryRun") or ()]
    faults: list[Mapping[str, str]] = [*deletion.faults(wish or {})]
    if kind != "DeleteOptions":
        faults += managed_fields.problems_of(call.options, applies=applies)
        if kind == "PatchOptions" and not applies and "force" in call.options:
            faults.append(metadata.forbidden("force", "may not be specified for non-apply patch"))
    if any(text != "All" for text in asked):
        faults.append(metadata.unsupported("dryRun", asked, "All"))
    judging = call.options.get("fieldValidation", "")
    if kind != "DeleteOptions" and judging not in _JUDGING:
        faults.append(metadata.unsupported("fieldValidation", judging, *_JUDGING))
    if faults:
        raise invalid(kind, "", faults, group="meta.k8s.io")
    return bool(asked)
