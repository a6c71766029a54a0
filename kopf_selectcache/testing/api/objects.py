"""The rules of writes: the effects of creating, changing or deleting an object, and the refusals.

Reads and watches use the History. Rules of single kinds are in strategies.py, and those of custom resources
in crds.py. Every write here is atomic: a refused write or a dry run stores nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec

from . import (
    apply,
    builtin,
    checks,
    deletion,
    events,
    known_fields,
    managed_fields,
    merge_types,
    metadata,
    patches,
    schemas,
    strategies,
    types,
)
from .admission import Admission, internal
from .crds import Definitions
from .history import History, ObjectKey, Stored
from .kinds import Kinds, Served
from .managed_fields import Writer
from .status import (
    Problem,
    bad_request,
    conflict,
    invalid,
    not_found,
    not_implemented,
)
from .types import Unknown, ignore

Managed: TypeAlias = list[dict[str, Any]]
"""`managedFields`, as they are stored."""

NAMESPACES = ("", "namespaces")
FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

_NO_LABELS: Mapping[str, str] = {}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_whole = msgspec.json.Decoder(dict[str, Any], float_hook=lambda text: whole(float(text))).decode
_canonical = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class How:
    """How a request writes: its options, and who reviews it."""

    dry_run: bool = False
    unknown: Unknown = ignore
    """Receives the unknown fields, which are dropped."""
    admission: Admission | None = None
    """Calls the webhooks, if there are any."""
    writer: Writer = field(default_factory=Writer)

    @property
    def of_status(self) -> bool:
        return self.writer.subresource == "status"


_PLAIN = How()


class Objects:
    """All objects of the cluster, as they are written. Names that begin with a word for a kind are those of
    Kubernetes.
    """

    def __init__(
        self,
        history: History,
        kinds: Kinds,
        *,
        now: Callable[[], dt.datetime],
        new_uid: Callable[[], str],
        suffix: Callable[[], str],
    ) -> None:
        self.history = history
        self.kinds = kinds
        self._now = now
        self._new_uid = new_uid
        self._suffix = suffix
        for served in builtin.BUILT_IN:
            kinds.add(served)
        self.definitions = Definitions(self)
        self._namespaces = _found(kinds, "", "v1", "namespaces")
        for name in FIRST_NAMESPACES:
            if history.get(NAMESPACES, ("", name)) is None:
                self.create(self._namespaces, "", {"metadata": {"name": name}})

    # ---- Reading.

    def get(self, served: Served, namespace: str, name: str) -> Stored:
        stored = self.history.get(served.table, (namespace, name))
        if stored is None:
            raise not_found(served.plural, name, group=served.group)
        return stored

    def time(self, *, after: int = 0) -> str:
        """Return the time now, or some seconds later, in the format of metadata."""
        then = self._now().astimezone(dt.UTC)
        if after:
            then += dt.timedelta(seconds=after)
        return then.isoformat(timespec="seconds")[:19] + "Z"

    def _time_of(self, admission: Admission | None) -> str:
        """Return the time of a write, the same one each time that its request is repeated."""
        return self.time() if admission is None else admission.keep("time", self.time)

    # ---- Writing.

    def create(
        self,
        served: Served,
        namespace: str,
        body: Mapping[str, Any],
        how: How = _PLAIN,
        *,
        managed: Managed | None = None,
    ) -> Stored:
        """Create an object. `managed` are the managers of its fields, if it is applied."""
        admission = how.admission
        new = self._readable(served, body, how.unknown)
        new["metadata"] = said = metadata.read(served, new)
        checks.fill_namespace(served, said, namespace)
        if served.namespaced:
            self._require_namespace(served, namespace, said.get("name") or said.get("generateName", ""))
        keep = _make_anew if admission is None else admission.keep
        if admission is not None:
            new, managed = self._mutated(how, served, namespace, new, managed=managed)
            said = new["metadata"]
        sent = said.pop("managedFields", None)
        name = said.get("name", "")
        if not name and "generateName" in said:
            name = said["name"] = metadata.generated(said["generateName"], keep("suffix", self._suffix))
        version = said.pop("resourceVersion", "")
        said |= {
            "uid": keep("uid", self._new_uid),
            "resourceVersion": str(self.history.next_version()),
            "creationTimestamp": keep("time", self.time),
        }
        said.pop("deletionTimestamp", None)
        said.pop("deletionGracePeriodSeconds", None)
        if served.has_generation:
            said["generation"] = 1
        new["metadata"] = said
        strategies.before_create(served, new)
        self._shape(served, new)
        more = self._problems_of(served, new) + strategies.problems_of_new(served, new)
        checks.check(served, metadata.problems_of(served, said), name, more)
        if managed is None:
            managed = self._managed(served, {}, new, sent, how)
        if managed:
            new["metadata"] = {**new["metadata"], "managedFields": managed}
        if admission is not None:
            unstored = {key: value for key, value in new["metadata"].items() if key != "resourceVersion"}
            shown = _typed(served, {**new, "metadata": unstored})
            admission.validate("CREATE", served, namespace, shown, None)
        if version:
            raise Problem(500, "", "resourceVersion should not be set on objects to be created")
        key = (namespace, name)
        if (there := self.history.get(served.table, key)) is not None:
            raise checks.taken(served, there)
        self.definitions.require_open(served, name)
        if how.dry_run:
            del new["metadata"]["resourceVersion"]
            return self._stored(served, key, new, 0)
        stored = self._stored(served, key, new, self.history.next_version())
        self.history.put(served.table, stored)
        self.definitions.written(served, stored)
        return stored

    def update(
        self,
        served: Served,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        how: How = _PLAIN,
    ) -> Stored:
        new = self._readable(served, body, how.unknown)
        said = metadata.read(served, new)
        checks.check_name(said, name)
        checks.fill_namespace(served, said, namespace)
        new["metadata"] = said
        old = self.history.get(served.table, (namespace, name))
        if old is None and served.creates_on_update and not how.of_status:
            checks.require_no_uid(served, (namespace, name), said)
            said.pop("resourceVersion", None)  # The server ignores it.
            return self.create(served, namespace, new, replace(how, unknown=ignore))
        if old is None:
            raise not_found(served.plural, name, group=served.group)
        managed = None
        if how.admission is not None:
            new, managed = self._mutated(how, served, namespace, new, old)
            said = new["metadata"]
        version = said.get("resourceVersion", "0")
        if version == "0" and not served.unconditional:
            unsaid = metadata.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(served.plural, name, [unsaid], group=served.group)
        checks.require_version(served, old, version)
        if said.get("uid", old.uid) != old.uid:
            raise checks.other_uid(served, old.key, said["uid"], old.uid)
        return self._change(served, old, _decode(old.data), new, how, managed)

    def patch(
        self,
        served: Served,
        namespace: str,
        name: str,
        patch: bytes,
        content_type: str,
        how: How = _PLAIN,
    ) -> Stored:
        change = patches.read(patch, content_type, served)
        old = self.get(served, namespace, name)
        before = _decode(old.data)
        shown = events.to_regarding(before) if served.group == events.GROUP else before
        patched = change({"kind": served.kind, "apiVersion": served.api_version, **shown})
        try:
            new = self._readable(served, patched, how.unknown)
            said = metadata.read(served, new)
        except Problem as problem:
            # An unreadable result is reported as an error of the patch.
            raise patches.unreadable(patched, problem.message) from None
        checks.check_name(said, name)
        checks.fill_namespace(served, said, namespace)
        new["metadata"] = said
        managed = None
        if how.admission is not None:
            new, managed = self._mutated(how, served, namespace, new, old)
            said = new["metadata"]
        checks.require_version(served, old, said.get("resourceVersion", "0"))
        return self._change(served, old, before, new, how, managed)

    def apply(
        self,
        served: Served,
        namespace: str,
        name: str,
        sent: Mapping[str, Any],
        how: How,
        *,
        force: bool = False,
    ) -> Stored:
        """Apply an object (server-side): merge it into the present one, or create it.

        Mutating webhooks see the merged object with its managers. What they change belongs to nobody.
        """
        if served.group == events.GROUP:
            raise not_implemented(f"server-side apply of {served.qualified}")
        old = self.history.get(served.table, (namespace, name))
        if old is None and how.writer.subresource:
            raise not_found(served.plural, name, group=served.group)
        before = _decode(old.data) if old is not None else {}
        result = apply.applied(
            served, before, sent, how.writer, force=force, time=self._time_of(how.admission)
        )
        body = result.body if served.custom else apply.without_nulls(result.body)
        new = self._readable(served, body, ignore)
        said = metadata.read(served, new)
        checks.check_name(said, name)
        if served.schema is not None:
            # An applied null is not dropped, unlike that of other writes.
            found = schemas.problems_of(served.schema, new)
            nulls = [item for item in found if item["reason"] == "FieldValueTypeInvalid"]
            checks.check(served, nulls, name, [])
        if old is None:
            said.pop("resourceVersion", None)
            if "uid" in said:
                why = f"the provided object specified uid {said['uid']}, and no existing object was found"
                raise conflict(served.plural, name, f"uid mismatch: {why}", group=served.group)
            body = {**body, "metadata": {**said, "managedFields": result.managed}}
            return self.create(served, namespace, body, how, managed=result.managed)
        checks.fill_namespace(served, said, namespace)
        new["metadata"] = {**said, "managedFields": result.managed}
        if how.admission is not None:
            new, _ = self._mutated(how, served, namespace, new, old, managed=result.managed)
            said = new["metadata"]
        checks.require_version(served, old, said.get("resourceVersion", "0"))
        return self._change(served, old, before, new, how, result.managed)

    def delete(
        self,
        served: Served,
        namespace: str,
        name: str,
        options: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
        admission: Admission | None = None,
    ) -> tuple[Stored, bool]:
        """Delete an object; return the response, and whether it is removed: if not, finalizers or its node
        keep it.
        """
        old = self.get(served, namespace, name)
        wish = deletion.Wish.read(options or {})
        wish.check(served, old)
        if served.table == NAMESPACES:
            return self._delete_namespace(served, old, wish, dry_run=dry_run, admission=admission)
        body = _decode(old.data)
        if admission is not None:
            admission.delete(served, old.key, _typed(served, body))
        outcome = deletion.decide(served, body, wish)
        if outcome.marks:
            said = deletion.mark(body["metadata"], outcome, self.time(after=outcome.grace))
            body = {**body, "metadata": said}
            if served.table == self.definitions.table:
                body = self.definitions.terminating(body)
            old = self._put(served, old, body, dry_run=dry_run)
        elif outcome.finalizers is not None and not outcome.removes:
            body["metadata"] = metadata.in_order({**body["metadata"], "finalizers": outcome.finalizers})
            old = self._put(served, old, body, dry_run=dry_run)
        if outcome.removes:
            return self._remove(served, old, dry_run=dry_run), True
        if served.table == self.definitions.table and not dry_run:
            self.definitions.empty(old)
        return old, False

    def delete_collection(
        self,
        served: Served,
        namespace: str,
        chosen: Callable[[Stored], bool],
        options: Mapping[str, Any] | None = None,
    ) -> list[Stored]:
        """Delete all selected objects; return their state before, as the server does."""
        found = [
            stored
            for key in self.history.keys(served.table, namespace=namespace)
            if (stored := self.history.get(served.table, key)) is not None and chosen(stored)
        ]
        for stored in found:
            if self.history.get(served.table, stored.key) is not None:
                self.delete(served, *stored.key, options)
        return found

    def replace(self, served: Served, old: Stored, body: dict[str, Any]) -> Stored:
        """Write the next version of an object as a controller does: without the rules for users."""
        return self._put(served, old, body, dry_run=False)

    def remove(self, served: Served, old: Stored) -> None:
        self._remove(served, old, dry_run=False)

    def restored(self) -> None:
        """Read the definitions again, after the history has been restored."""
        self.definitions.reload()

    # ---- The steps of a write.

    def _readable(self, served: Served, body: Mapping[str, Any], unknown: Unknown) -> dict[str, Any]:
        """Return a copy that may be changed, without kind and apiVersion, with the metadata first."""
        new = {"metadata": None, **body}
        kind, api_version = new.pop("kind", None), new.pop("apiVersion", None)
        if why := types.misfit({"kind": kind, "apiVersion": api_version}, types.TYPE, ""):
            raise bad_request(f"couldn't get version/kind; json parse error: {why}")
        checks.require_kind(served, kind or "", api_version or "", new)
        paths: list[str] = []
        if served.custom:
            paths += known_fields.unknown_metadata(new)
            paths += sorted(path for path, _, _ in schemas.unknown(served.schema or {}, new))
        else:
            types.require(served, new)
            new = known_fields.known(served, new, paths)
        unknown(served, paths)
        strategies.read_data(served, new)
        if served.group == events.GROUP:
            new = {"metadata": None, **events.to_involved(new)}
        return new

    def _require_namespace(self, served: Served, namespace: str, name: str) -> None:
        home = self.history.get(NAMESPACES, ("", namespace))
        if home is None:
            raise not_found("namespaces", namespace)
        if home.fields["status.phase"] == "Terminating":
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise checks.forbidden(
                served,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
                [cause],
            )

    def _problems_of(self, served: Served, new: Mapping[str, Any]) -> list[metadata.StatusCause]:
        return self.definitions.problems_of(served, new) + strategies.problems_of(served, new)

    def _mutated(
        self,
        how: How,
        served: Served,
        namespace: str,
        new: dict[str, Any],
        old: Stored | None = None,
        *,
        managed: Managed | None = None,
    ) -> tuple[dict[str, Any], Managed | None]:
        """Return an object as the mutating webhooks change it, and its managers if they change it.

        The managers are those of before: the fields that a webhook adds belong to nobody.
        """
        stored = {} if old is None else _decode(old.data)
        said = dict(new["metadata"])
        sent = said.pop("managedFields", None)
        first = self._managed(served, stored, new, sent, how) if managed is None else managed
        shown = _typed(served, {**new, "metadata": said | ({"managedFields": first} if first else {})})
        before = None if old is None else _typed(served, stored)
        operation = "CREATE" if old is None else "UPDATE"
        assert how.admission is not None, "it is asked only if webhooks exist"
        changed = how.admission.mutate(
            operation, served, namespace, shown, before, subresource=how.writer.subresource
        )
        if changed is shown:
            return new, managed
        try:
            again = self._readable(served, changed, ignore)
            again["metadata"] = said = metadata.read(served, again)
        except Problem as problem:
            # An unreadable result is reported as an error of the server.
            raise internal(patches.reason_in(problem.message)) from None
        checks.fill_namespace(served, said, namespace)
        return again, first

    def _shape(self, served: Served, new: dict[str, Any]) -> None:
        """Drop fields that the server does not store, and add its own."""
        if not served.custom:
            for key in [key for key, value in new.items() if value is None]:
                del new[key]
            if served.table == events.TABLE:
                events.fill(new)
        if served.custom:
            # The body is not changed, but this copy of it is; and 1.0 becomes 1.
            new |= _decode_whole(_encode(new))
        new["metadata"] = metadata.in_order(new["metadata"])
        self.definitions.shape(served, new)

    def _change(
        self,
        served: Served,
        old: Stored,
        before: dict[str, Any],
        new: dict[str, Any],
        how: How,
        managed: Managed | None,
    ) -> Stored:
        """Replace one version of an object by the next, or remove it."""
        was, said = before["metadata"], new["metadata"]
        sent = said.pop("managedFields", None)
        name = old.key[1]
        for key in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
            if key in was:
                said.setdefault(key, was[key])
        said |= {"creationTimestamp": was["creationTimestamp"], "resourceVersion": was["resourceVersion"]}
        said.pop("generation", None)
        if "generation" in was:
            said["generation"] = was["generation"]
        if how.of_status:
            new = strategies.status_of(served, before, new)
        elif served.has_status:
            new.pop("status", None)
            if "status" in before:
                new["status"] = before["status"]
        strategies.before_update(served, new)
        self._shape(served, new)
        said = new["metadata"]
        found = metadata.problems_of_change(was, said) + metadata.problems_of(served, said)
        # The server checks the metadata of a change twice, and lists each finding twice.
        more = strategies.problems_of_change(served, before, new) or self.definitions.problems_of_change(
            served, before, new
        )
        checks.check(served, found * 2, name, more or self._problems_of(served, new))
        if not how.of_status and strategies.counts_up(served, before, new, changed=_differ):
            new["metadata"] = metadata.in_order({**said, "generation": was.get("generation", 0) + 1})
        if managed is None:
            managed = self._managed(served, before, new, sent, how)
        if managed:
            new["metadata"] = {**new["metadata"], "managedFields": managed}
        if how.admission is not None:
            how.admission.validate(
                "UPDATE",
                served,
                old.key[0],
                _typed(served, new),
                _typed(served, before),
                subresource=how.writer.subresource,
            )
        if deletion.is_over(served, was, new):
            self._remove(served, old, dry_run=how.dry_run)
            return self._stored(served, old.key, new, old.version)
        if not _differ(before, new) or (
            "managedFields" in was and not _differ(_without_times(before), _without_times(new))
        ):
            return old
        stored = self._put(served, old, new, dry_run=how.dry_run)
        if served.table == NAMESPACES:
            self._finish_namespace(name)
        return stored

    def _managed(
        self,
        served: Served,
        before: Mapping[str, Any],
        new: Mapping[str, Any],
        sent: Any,
        how: How,
    ) -> Managed | None:
        """Return the managers of the fields after a change; None if they are not tracked."""
        if not managed_fields.is_tracked(before, sent, how.writer):
            return None
        time = self._time_of(how.admission)
        return managed_fields.updated(served, merge_types.of(served), before, new, sent, how.writer, time)

    def _put(self, served: Served, old: Stored, new: dict[str, Any], *, dry_run: bool) -> Stored:
        if dry_run:
            return self._stored(served, old.key, new, old.version)
        version = self.history.next_version()
        new["metadata"]["resourceVersion"] = str(version)
        stored = self._stored(served, old.key, new, version)
        self.history.put(served.table, stored)
        self.definitions.written(served, stored)
        return stored

    def _remove(self, served: Served, old: Stored, *, dry_run: bool) -> Stored:
        if dry_run:
            return old
        version = self.history.next_version()
        gone = Stored(
            old.key, old.uid, version, metadata.with_version(old.data, version), old.labels, old.fields
        )
        self.history.remove(served.table, gone)
        self.definitions.removed(served, gone)
        if served.namespaced:
            self._finish_namespace(old.key[0])
        return gone

    def _stored(self, served: Served, key: ObjectKey, body: Mapping[str, Any], version: int) -> Stored:
        said = body["metadata"]
        fields = (
            events.field_values(body)
            if served.table == events.TABLE
            else self.definitions.field_values(served, body)
        )
        return Stored(key, said["uid"], version, _encode(body), said.get("labels", _NO_LABELS), fields)

    # ---- Namespaces, in the role of their controller.

    def _delete_namespace(
        self,
        served: Served,
        old: Stored,
        wish: deletion.Wish,
        *,
        dry_run: bool,
        admission: Admission | None,
    ) -> tuple[Stored, bool]:
        name = old.key[1]
        if name in {"default", "kube-system", "kube-public"}:
            raise checks.forbidden(served, name, "this namespace may not be deleted", [])
        body = _decode(old.data)
        if "deletionTimestamp" not in body["metadata"]:
            if admission is not None:
                admission.delete(served, old.key, _typed(served, body))
            said = {**body["metadata"], "deletionTimestamp": self.time()}
            said["finalizers"] = metadata.finalizers_of_deletion(said.pop("finalizers", []), wish.policy)
            if not said["finalizers"]:
                del said["finalizers"]
            body["metadata"] = metadata.in_order(said)
            body["status"] = {**strategies.part(body, "status"), "phase": "Terminating"}
            old = self._put(served, old, body, dry_run=dry_run)
            if not dry_run:
                for kind in self._storing():
                    self.delete_collection(
                        kind,
                        name,
                        lambda _: True,
                        {"gracePeriodSeconds": 0, "propagationPolicy": "Background"},
                    )
                self._finish_namespace(name)
        return old, False

    def _finish_namespace(self, name: str) -> None:
        """Remove a namespace that is terminating and empty, if it has no finalizer."""
        home = self.history.get(NAMESPACES, ("", name))
        if home is None or home.fields["status.phase"] != "Terminating":
            return
        if any(self.history.keys(kind.table, namespace=name) for kind in self._storing()):
            return
        body = _decode(home.data)
        held = [item for item in body["spec"].get("finalizers", ()) if item != "kubernetes"]
        if not held and not body["metadata"].get("finalizers"):
            self._remove(self._namespaces, home, dry_run=False)

    def _storing(self) -> list[Served]:
        """The namespaced kinds, one for each table."""
        return list({served.table: served for served in self.kinds if served.namespaced}.values())


def _make_anew(_: str, make: Callable[[], str]) -> str:
    return make()


def typed(served: Served, data: bytes) -> dict[str, Any]:
    """Return a stored object as clients see it."""
    return _typed(served, _decode(data))


def _typed(served: Served, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as clients see it, with its kind."""
    shown = events.to_regarding(body) if served.group == events.GROUP else body
    return {"kind": served.kind, "apiVersion": served.api_version, **shown}


def _found(kinds: Kinds, group: str, version: str, plural: str) -> Served:
    served = kinds.find(group, version, plural)
    assert served is not None
    return served


def whole(number: float) -> float:
    """Return a number as the server stores it: without a fraction of zero."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _without_times(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as it is compared: a write that changes only times of managers is none."""
    said = body["metadata"]
    return {
        **body,
        "metadata": {**said, "managedFields": managed_fields.without_times(said.get("managedFields"))},
    }


def _differ(one: Any, other: Any) -> bool:
    """Return True if two values are different JSON. Unlike in Python, `1` and `true` differ."""
    return one is not other and (one != other or _canonical(one) != _canonical(other))
