"""`cache.why`: where one object stands, and why: requirements it fails, the state, missing permissions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Protocol, cast

from kopf_selectcache._errors import ReadError
from kopf_selectcache.client.fetcher import metadata_of, page_of_metadata
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import METADATA, Transport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import OutsideRecord, Record
from kopf_selectcache.informer import namespaces
from kopf_selectcache.selectors.selecting import failures, failures_outside
from kopf_selectcache.selectors.selector import Branches, Selector, brief, of_unknown_namespaces
from kopf_selectcache.settings.planner import Right

from . import snapshots
from ._checks import require_names_of, require_place
from ._server_reads import resource_of
from .errors import NotFound, OutsideFilter, Reason
from .request import Request
from .snapshots import Access, Snapshot, informer_of

METADATA_ONLY = Projection(metadata_only=True)
"""The projection of the metadata that the server returns."""


class Standing(StrEnum):
    """Where an object stands in a cache."""

    CACHED = "cached"
    ABSENT = "absent"
    """It does not exist: the server says so, or the cache would have it."""
    OUTSIDE = "outside"
    """It exists, and no branch of the filter selects it."""
    DUE = "due"
    """It exists, and a branch selects it, but the cache does not have it: look at the state of the cache."""
    UNKNOWN = "unknown"
    """It is not cached, and may exist and be selected: look at the state of the cache."""


@dataclass(frozen=True, slots=True)
class BranchResult:
    """One branch of the filter, as it was declared, compared with an object."""

    filter: Selector
    fails: tuple[str, ...]
    """The requirements that the object fails; empty if the branch selects it."""
    has: tuple[str, ...] = ()
    """The labels that the object has instead, such as `app=db` or `no label tier`."""
    is_known: bool = True
    """False if only the server can tell, and was not asked."""
    operator_namespaces: tuple[str, ...] = ()
    """The namespaces of the operator (`-n`), if they confine the branch; empty if it has its own, or all."""

    def __str__(self) -> str:
        return f"{clipped(brief(self.filter), 300)}{self._confined()}: {self._compared()}"

    def _confined(self) -> str:
        names = clipped(" -n ".join(self.operator_namespaces), 300)
        return f" (the operator runs with -n {names})" if names else ""

    def _compared(self) -> str:
        needs = " and ".join(self.fails)
        if self.fails and self.has:
            but = f"it has {', '.join(self.has)}"
            return but if needs == brief(self.filter) else f"it needs {needs}, but {but}"
        if self.fails:
            return f"it fails {needs}"
        return "selects it" if self.is_known else "only the server knows"

    def as_declared(self, declared: Branches) -> BranchResult:
        """Return the result with the namespaces of the operator apart from the declared branch."""
        branch = self.filter.in_namespaces(None)
        if self.filter in declared.branches or branch not in declared.branches:
            return self
        return replace(self, filter=branch, operator_namespaces=self.filter.namespaces or ())


@dataclass(frozen=True, slots=True)
class Why:
    """The result of `cache.why`; `str` gives a few lines of text."""

    kind: str
    namespace: str | None
    name: str
    standing: Standing
    branches: tuple[BranchResult, ...] = ()
    """Each branch of the filter; empty if nothing is known of the object."""
    state: str = ""
    """The health of the cache, such as `synced` or `forbidden`; empty if none runs."""
    message: str = ""
    """The failure of the cache; empty if there is none."""
    since: float | None = None
    """The seconds for which it has been in this state."""
    version: str = ""
    """The version of the cache; empty before its first complete list."""
    age: float | None = None
    """The seconds since the server last confirmed the cache."""
    object_version: str = ""
    """The version of the object, as the server or the cache has it."""
    has_namespace: bool = True
    """False if its namespace does not exist."""
    missing: Right | None = None
    """The permission without which the server does not tell if the object exists."""
    unanswered: str = ""
    """Why the server does not tell; empty if it does, or was not asked."""

    def __str__(self) -> str:
        within = f" in {self.namespace}" if self.namespace else ""
        end = ":" if self.branches else "."
        lines = [f"{self.kind}/{clipped(self.name, 300)}{within} {self._described()}{end}"]
        lines += [f"  {branch}" for branch in self.branches]
        if self.missing is not None:
            lines.append(f"Permission is missing to {self.missing}: {self.missing.written()}")
        elif self.unanswered:
            lines.append(f"The server doesn't answer: {self.unanswered}.")
        return "\n".join([*lines, *self._state()])

    def as_declared(self, declared: Branches) -> Why:
        """Return the answer with the namespaces of the operator apart from each declared branch."""
        return replace(self, branches=tuple(each.as_declared(declared) for each in self.branches))

    def _described(self) -> str:
        match self.standing:
            case Standing.CACHED:
                return f"is cached, at version {self.object_version}"
            case Standing.ABSENT:
                there = "" if self.has_namespace else f": the namespace {self.namespace!r} doesn't exist"
                return f"doesn't exist{there}"
            case Standing.OUTSIDE:
                return "exists, but the filter leaves it out"
            case Standing.DUE:
                behind = ", but it is not cached yet" if self.state else ""
                return f"exists at version {self.object_version}, and the filter selects it{behind}"
            case _:
                return "is not cached: it doesn't exist, or the filter leaves it out"

    def _state(self) -> Iterator[str]:
        if not self.state:
            return
        since = "" if self.since is None else f", for {self.since:.0f} s"
        as_of = f", as of version {self.version}" if self.version else ""
        age = f", confirmed {self.age:.1f} s ago" if self.age is not None else ""
        failure = f": {self.message}" if self.message else ""
        yield f"The cache is {self.state}{since}{as_of}{age}{failure}."


class _Client(Protocol):
    """Sends GET requests: a transport, or the fetcher of an operator."""

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = ..., most: int | None = None
    ) -> bytes: ...


class MetadataRequest:
    """Asks the server for the metadata of one object, and which fields it matches."""

    def __init__(self, client: _Client, resource: Resource, namespace: str | None, name: str) -> None:
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._name = name

    async def record(self) -> Record | None:
        """Return the metadata; None if the object does not exist. Raise Refused, Unreachable or Garbled."""
        path = self._resource.path(self._namespace, self._name)
        try:
            answer = await self._client.get(path, {}, accept=METADATA)
        except Refused as error:
            if (error.refusal.code, error.refusal.reason) == (404, "NotFound"):
                return None
            raise
        record = metadata_of(self._resource, answer)
        if (record.namespace, record.name) != (self._namespace or "", self._name):
            raise Garbled("another object came than was asked for")
        return record

    async def results(self, declared: Branches, record: Record) -> tuple[BranchResult, ...]:
        """Compare the object with each branch; the server decides about fields. Raises likewise."""
        found = []
        for branch in declared.branches:
            result = compare(branch, record, self._resource)
            if not result.is_known and not await self._is_selected(branch):
                terms = tuple(str(term) for term in branch.terms)
                result = BranchResult(branch, terms)
            elif not result.is_known:
                result = BranchResult(branch, ())
            found.append(result)
        return tuple(found)

    async def _is_selected(self, branch: Selector) -> bool:
        """Ask the server if the fields of a branch select the object."""
        query = Selector(fields=branch.fields, names=[self._name]).query()
        paging = Paging(query, page_limit=None, patience=60.0)
        path = self._resource.path(self._namespace, None)
        client = cast("Transport", self._client)
        page = await page_of_metadata(client, self._resource, path, paging)
        return any(record.name == self._name for record in page.records)


def compare(
    branch: Selector, record: Record, resource: Resource, projection: Projection = METADATA_ONLY
) -> BranchResult:
    """Compare an object with one branch. Fields that its projection lacks are left to the server."""
    fails, has = list[str](), dict[str, None]()
    if branch.namespace_label is not None and record.namespace not in (branch.namespaces or ()):
        label = str(branch.namespace_label)
        fails.append(f"the label {label} of its namespace" if label else "the namespaces of this replica")
    else:
        alone = Selector(names=branch.names, namespaces=branch.namespaces)
        fields = {"metadata.name": record.name, "metadata.namespace": record.namespace}
        if (failed := alone.failed({}, fields)) is not None:
            fails.append(failed)
    for requirement in branch.requirements:
        if not requirement.matches(record.labels):
            fails.append(str(requirement))
            value = record.labels.get(requirement.key)
            has[f"no label {requirement.key}" if value is None else f"{requirement.key}={value}"] = None
    if fails or not branch.terms:
        return BranchResult(branch, tuple(fails), tuple(has))
    failed_terms = failures(Selector(fields=branch.fields), record, resource, projection)
    return BranchResult(branch, failed_terms or (), is_known=failed_terms is not None)


async def ask_server(
    client: _Client, declared: Branches, resource: Resource, namespace: str | None, name: str
) -> Why:
    """Return where an object stands that is not cached, as the server answers."""
    metadata = MetadataRequest(client, resource, namespace, name)
    why = partial(Why, str(resource), namespace, name)
    try:
        record = await metadata.record()
        if record is None:
            return why(Standing.ABSENT, has_namespace=await _has_namespace(client, namespace))
        results = await metadata.results(declared, record)
    except Refused as error:
        if error.refusal.code == 403:
            kind, verbs = resource.kind, frozenset({"get"})
            right = Right(kind.group, kind.plural, verbs, namespace, frozenset({name}))
            return why(Standing.UNKNOWN, missing=right)
        unanswered = f"{error.refusal.code} {error.refusal.reason}".rstrip()
        return why(Standing.UNKNOWN, unanswered=unanswered)
    except (Unreachable, Garbled) as error:
        return why(Standing.UNKNOWN, unanswered=clipped(error, 300))
    is_due = any(not each.fails for each in results)
    standing = Standing.DUE if is_due else Standing.OUTSIDE
    return why(standing, branches=results, object_version=record.version)


async def why(access: Access, request: Request, *, ask: bool) -> Why:
    """Return where an object stands in the cache of its kind, and why."""
    informer = informer_of(access.runtime, request)
    resource = informer.state.resource or await resource_of(access.runtime, request)
    require_place(request, resource)
    require_names_of(request)
    namespace, name = request.namespace, request.name or ""
    known, standing, is_absent = None, Standing.CACHED, False
    try:
        known, standing = access.read(request, _located)
    except NotFound:
        is_absent = True
    except ReadError:
        pass  # The state of the cache is part of the result.
    declared = informer.state.filter
    if known is not None:
        results = tuple(
            _compare_known(each, known, resource, informer.state.projection) for each in declared.branches
        )
        found = Why(str(resource), namespace, name, standing, results, object_version=known.version)
    elif is_absent or not ask or of_unknown_namespaces(declared) is not None:
        standing = Standing.ABSENT if is_absent else Standing.UNKNOWN
        is_certain = not (is_absent and ask) or any(
            record.namespace == namespace for record in informer.state.store.records()[0]
        )
        has_namespace = is_certain or await _has_namespace(access.runtime.fetches, namespace)
        found = Why(str(resource), namespace, name, standing, has_namespace=has_namespace)
    else:
        found = await ask_server(access.runtime.fetches, declared, resource, namespace, name)
    return replace(
        found.as_declared(informer.declared.filter_for(resource)),
        state=str(informer.state.health),
        message=clipped(informer.state.message, 500),
        since=informer.state.lasted(),
        version=informer.state.version,
        age=informer.state.age(),
    )


async def _has_namespace(client: _Client, namespace: str | None) -> bool:
    """Return False if the server says that the namespace does not exist."""
    try:
        return namespace is None or await namespaces.exists(client, namespace)
    except (Refused, Unreachable, Garbled):
        return True


def _located(request: Request, snapshot: Snapshot) -> tuple[Record, Standing]:
    """Return an object that is cached, or known outside of the filter; raise the errors of `get`."""
    try:
        return snapshots.get_record(request, snapshot), Standing.CACHED
    except OutsideFilter as error:
        found, _ = snapshot.locate(request.namespace or "", request.name or "")
        if error.reason is not Reason.OUTSIDE or found is None:
            raise
        return found, Standing.OUTSIDE


def _compare_known(
    branch: Selector, record: Record, resource: Resource, projection: Projection
) -> BranchResult:
    """Compare an object that the cache knows with one branch of its filter."""
    if not isinstance(record, OutsideRecord):
        return compare(branch, record, resource, projection)
    result = compare(branch, record, resource)
    return result if result.is_known else BranchResult(branch, failures_outside(branch, record))
