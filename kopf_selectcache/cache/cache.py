"""What handlers get as `cache`: the reads. Each answers from inside the declared filter, or says at once why
it cannot.

The only place that raises read errors. Which read is answered in which case is one table, in the
documentation and in the tests: `list` is complete or an error, `held` is the part that is held, `get` tells
absent from hidden.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, overload

from kopf_selectcache._errors import (
    NotDeclared,
    NotFound,
    NotKept,
    NotSynced,
    OutsideFilter,
    Stale,
    StateError,
    Unreadable,
)
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName, key_of
from kopf_selectcache.selectors.selector import Selector

from .checks import (
    asked_for,
    checked_many,
    checked_one,
    checked_uid,
    chosen_of,
    feed_of,
    match_of,
    must_be_covered,
    must_be_kept,
    must_be_readable,
    must_be_whole,
    must_overlap,
    must_suit,
    owner_of,
    request_of,
    wanted_form,
)
from .errors import Unmatchable
from .formats.formats import Form, formed
from .formats.lazy_list import Objects
from .formats.views import BodyView
from .introspection import Telling
from .live import ask_many, ask_one, ask_uid, projection_of, resource_of
from .matcher import (
    Field,
    IndexedSelection,
    Label,
    Match,
    Namespaces,
    Obj,
    Selection,
    SortBy,
    Where,
    paths_of,
)
from .reading import at_once, look, read, waiting
from .request import Many, One, Read

if TYPE_CHECKING:
    from .formats.formats import As, Default, Made, Named

_RAISE: Final = object()
_NOT_HERE = (OutsideFilter, NotDeclared, NotSynced, Stale, StateError, Unmatchable)
"""What a read of the cache may say, and the server may know better."""


def _is_there(_: Record) -> bool:
    return True


class Cache(Telling):
    """The caches of one operator, as one handler sees them. Reads are safe in any thread; those to await, on
    its loop.

    `own` is the body that the handler was called with: reads show that object at least as new. `deleted` says
    that it was called with its deletion. `departed` is the uid of what the handler has reason to believe
    gone: whether it is, the cache may not know yet. `waits` has what its threads wait for, for those who must
    end them.
    """

    # ---- One object.

    @overload
    def get(
        self,
        kind: AnyName,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: None = None,
    ) -> Obj | Default: ...
    @overload
    def get(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: Literal["view"],
    ) -> BodyView | Default: ...
    @overload
    def get(
        self,
        kind: type[Named],
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: None = None,
    ) -> Named | Default: ...
    @overload
    def get(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: As[Made],
    ) -> Made | Default: ...
    @at_once
    def get(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Any = _RAISE,
        max_age: float | None = None,
        as_: Any = None,
    ) -> Any:
        """Return one object; raise NotFound if it is proved absent, OutsideFilter if it may exist and not be
        held.

            pod = cache.get('pods', 'web-1', namespace)
            config = cache.get('configmaps', name, namespace, default=None)
            pod = cache.get('pods', 'web-1', namespace, as_='view')      # read-only, wherever Kopf takes a body
            pod = cache.get(V1Pod, 'web-1', namespace)                   # with the classes of kubernetes or pykube

        The default stands for what is proved absent, never for what is merely not held.
        """  # noqa: E501
        form = wanted_form("get", kind, as_)
        options = (
            {"max_age": max_age, "as_": as_}
            if default is _RAISE
            else {"default": default, "max_age": max_age, "as_": as_}
        )
        try:
            with self._reading("get", kind, max_age, name=name, namespace=namespace, options=options) as view:
                return self._object(
                    One("get", kind, view.resource, name, namespace, self._sync, options), view, form
                )
        except NotFound:
            if default is _RAISE:
                raise
            return default

    @read
    def exists(
        self, kind: AnyKey, name: str, namespace: str | None = None, *, max_age: float | None = None
    ) -> bool:
        """Return True if the object is held, False if it is proved absent; raise what `get` raises otherwise.

        if not cache.exists('secrets', 'ca-bundle', 'infra'):
            raise kopf.TemporaryError('no CA yet')
        """
        if max_age is None and self._plainly("exists", kind, name, namespace, _is_there):
            return True
        try:
            options = {"max_age": max_age}
            with self._reading(
                "exists", kind, max_age, name=name, namespace=namespace, options=options
            ) as view:
                self._one(One("exists", kind, view.resource, name, namespace, self._sync, options), view)
        except NotFound:
            return False
        return True

    @overload
    async def fetch(
        self,
        kind: AnyName,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: None = None,
        whole: bool = False,
        timeout: float | None = None,  # As below.  # noqa: ASYNC109
    ) -> Obj | Default: ...
    @overload
    async def fetch(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: Literal["view"],
        whole: bool = False,
        timeout: float | None = None,  # As below.  # noqa: ASYNC109
    ) -> BodyView | Default: ...
    @overload
    async def fetch(
        self,
        kind: type[Named],
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: None = None,
        whole: bool = False,
        timeout: float | None = None,  # As below.  # noqa: ASYNC109
    ) -> Named | Default: ...
    @overload
    async def fetch(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: As[Made],
        whole: bool = False,
        timeout: float | None = None,  # As below.  # noqa: ASYNC109
    ) -> Made | Default: ...
    @waiting
    async def fetch(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Any = _RAISE,
        max_age: float | None = None,
        as_: Any = None,
        whole: bool = False,
        timeout: float | None = None,  # Retries are within it.  # noqa: ASYNC109
    ) -> Any:
        """Return one object, from the cache if it is held or proved absent there, and else from the server.

            if await cache.fetch('configmaps', name, namespace, default=None) is None:
                create_config(name, namespace)

        The kind need not be declared. Nothing is remembered: what is not held, or is held as unreadable, is
        asked for each time. Where `keep=`, `drop=` or `transform=` is declared, the server's answer is cut as
        what is held is; with `whole=True` it is asked for all of it. With `timeout=`, transient failures are
        retried for that many seconds; then the last one is raised.
        """
        form = wanted_form("fetch", kind, as_)
        options = {"max_age": max_age, "as_": as_, "whole": whole, "timeout": timeout}
        options |= {} if default is _RAISE else {"default": default}
        read = Read("fetch", kind, None, name, namespace, self._sync, options)
        return await self._persistently(
            read, timeout, lambda: self._fetch(read, name, namespace, default, max_age, form, whole=whole)
        )

    async def _fetch(
        self,
        read: Read,
        name: str,
        namespace: str | None,
        default: Any,
        max_age: float | None,
        form: Form | None,
        *,
        whole: bool,
    ) -> Any:
        """Return one object, or raise why not, as of one attempt."""
        kind, options = read.kind, read.options
        try:
            with (
                suppress(*_NOT_HERE, NotKept, Unreadable),
                self._reading("fetch", kind, max_age, name=name, namespace=namespace) as view,
            ):
                one = One("fetch", kind, view.resource, name, namespace, self._sync, options)
                found = self._object(one, view, form)
                if whole:
                    must_be_whole(one, view)
                return found
            resource = await resource_of(self._runtime, read)
            one = checked_one(One("fetch", kind, resource, name, namespace, self._sync, options))
            asked_for(one)  # What is no name must not become a part of a path.
            projection = ALL if whole else projection_of(self._runtime, key_of(kind))
            must_suit(one, form, projection, self._runtime)
            record = await ask_one(self._runtime, one, projection)
            return record.decode() if form is None else form.make(record, None)
        except NotFound:
            if default is _RAISE:
                raise
            return default

    @waiting
    async def gone(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        max_age: float | None = None,
        timeout: float | None = None,  # Retries are within it.  # noqa: ASYNC109
    ) -> bool:
        """Return whether an object that departed is really deleted: True, or False if it merely left the
        filter.

            if await cache.gone('jobs', name, namespace, uid=uid):
                release(uid)

        What is not held with this uid is asked for, of the server, by its metadata alone; nothing is
        remembered. So is an object that is still held, and that one of several watches has let go. Another
        object of the name, with another uid, does not count; without a uid, whichever has the name does. An
        object that is being deleted, with a deletionTimestamp, still exists. The kind need not be declared.
        With `timeout=`, transient failures are retried for that many seconds; then the last one is raised.
        """
        read = Read("gone", kind, None, name, namespace, self._sync, {"timeout": timeout})
        return await self._persistently(
            read, timeout, lambda: self._gone(read, name, namespace, uid, max_age)
        )

    async def _gone(
        self, read: Read, name: str, namespace: str | None, uid: str | None, max_age: float | None
    ) -> bool:
        """Answer `gone`, or raise why not, as of one attempt."""
        kind = read.kind
        checked_uid(uid, "cache.gone()")
        with (
            suppress(NotFound, *_NOT_HERE),
            self._reading("gone", kind, max_age, name=name, namespace=namespace) as view,
        ):
            held = self._one(One("gone", kind, view.resource, name, namespace, self._sync), view).uid
            if (
                uid in (None, held)
                and held != self._departed
                and not feed_of(self._runtime, kind).is_unconfirmed(namespace or "", name)
            ):
                return False
        # What is absent here may have come since: only the server knows of an object that the reader knows
        # from elsewhere.
        resource = await resource_of(self._runtime, read)
        one = checked_one(One("gone", kind, resource, name, namespace, self._sync, read.options))
        asked_for(one)  # As above.
        found = await ask_uid(self._runtime, one)
        return found is None or uid not in (None, found)

    # ---- Several objects.

    @overload
    def list(
        self, kind: AnyKey, *, keys_only: Literal[True], **asked: Unpack[IndexedSelection]
    ) -> builtins.list[tuple[str, str]]: ...
    @overload
    def list(self, kind: AnyName, *, as_: None = None, **asked: Unpack[IndexedSelection]) -> Objects[Obj]: ...
    @overload
    def list(
        self, kind: AnyKey, *, as_: Literal["view"], **asked: Unpack[IndexedSelection]
    ) -> Objects[BodyView]: ...
    @overload
    def list(
        self, kind: type[Named], *, as_: None = None, **asked: Unpack[IndexedSelection]
    ) -> builtins.list[Named]: ...
    @overload
    def list(
        self, kind: AnyKey, *, as_: As[Made], **asked: Unpack[IndexedSelection]
    ) -> builtins.list[Made]: ...
    @read
    def list(
        self,
        kind: AnyKey,
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        sort_by: SortBy | None = None,
        limit: int | None = None,
        max_age: float | None = None,
        as_: Any = None,
        keys_only: bool = False,
        index: Mapping[str, object] | None = None,
    ) -> Any:
        """Return all objects that there are; raise OutsideFilter if some of them might not be held.

            pods = cache.list('pods', namespace=namespace, label='app=web,tier=gold')
            oldest = cache.list('jobs', label={'run': run}, sort_by='metadata.creationTimestamp', limit=1)

        `label` and `field` are text, dicts, or selectors. `where` compares values at any path, after the
        selection: it never makes a read complete; nor does `index`, which compares the values of declared
        indexes. The order is unspecified without `sort_by`. Each object is made when it is reached
        (`Objects`); with `keys_only=True` none is, and namespaces and names are returned.
        """
        form = wanted_form("list", kind, as_, keys_only=keys_only)
        request = request_of(self._runtime, "list", kind, namespace, label, field, names)
        found = self._selected(
            "list", kind, request, must_be_covered, where, sort_by, limit, max_age, form, index=index
        )
        return found.keys() if keys_only else found

    @overload
    def held(
        self, kind: AnyKey, *, keys_only: Literal[True], **asked: Unpack[IndexedSelection]
    ) -> builtins.list[tuple[str, str]]: ...
    @overload
    def held(self, kind: AnyName, *, as_: None = None, **asked: Unpack[IndexedSelection]) -> Objects[Obj]: ...
    @overload
    def held(
        self, kind: AnyKey, *, as_: Literal["view"], **asked: Unpack[IndexedSelection]
    ) -> Objects[BodyView]: ...
    @overload
    def held(
        self, kind: type[Named], *, as_: None = None, **asked: Unpack[IndexedSelection]
    ) -> builtins.list[Named]: ...
    @overload
    def held(
        self, kind: AnyKey, *, as_: As[Made], **asked: Unpack[IndexedSelection]
    ) -> builtins.list[Made]: ...
    @read
    def held(
        self,
        kind: AnyKey,
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        sort_by: SortBy | None = None,
        limit: int | None = None,
        max_age: float | None = None,
        as_: Any = None,
        keys_only: bool = False,
        index: Mapping[str, object] | None = None,
    ) -> Any:
        """Return those of the held objects that match; raise OutsideFilter if none can ever be held.

            mine = cache.held('pods', namespace=namespace, label={'instance': name})

        There may be others that match, outside the filter: where that matters, `list` is the read.
        """
        form = wanted_form("held", kind, as_, keys_only=keys_only)
        request = request_of(self._runtime, "held", kind, namespace, label, field, names)
        found = self._selected(
            "held", kind, request, must_overlap, where, sort_by, limit, max_age, form, index=index
        )
        return found.keys() if keys_only else found

    @overload
    def owned(
        self, owner: Mapping[str, Any], kind: AnyName, *, max_age: float | None = None, as_: None = None
    ) -> Objects[Obj]: ...
    @overload
    def owned(
        self, owner: Mapping[str, Any], kind: AnyKey, *, max_age: float | None = None, as_: Literal["view"]
    ) -> Objects[BodyView]: ...
    @overload
    def owned(
        self, owner: Mapping[str, Any], kind: type[Named], *, max_age: float | None = None, as_: None = None
    ) -> builtins.list[Named]: ...
    @overload
    def owned(
        self, owner: Mapping[str, Any], kind: AnyKey, *, max_age: float | None = None, as_: As[Made]
    ) -> builtins.list[Made]: ...
    @read
    def owned(
        self, owner: Mapping[str, Any], kind: AnyKey, *, max_age: float | None = None, as_: Any = None
    ) -> Any:
        """Return those of the held objects that are owned by this one, by its uid.

            pods = cache.owned(body, 'pods')

        As with `held`, there may be others outside the filter.
        """
        uid, namespace = owner_of(
            owner,
            f"cache.owned(body, {kind!r})" if isinstance(kind, (str, tuple)) else "cache.owned(body, kind)",
        )
        form = wanted_form("owned", kind, as_)
        with self._reading(
            "owned", kind, max_age, namespace=namespace, options={"max_age": max_age, "as_": as_}
        ) as view:
            # Whoever is owned by a namespaced object lives in its namespace.
            within = [namespace] if namespace and view.resource.kind.namespaced else None
            many = Many("owned", kind, view.resource, Selector(namespaces=within), self._sync, {"as_": as_})
            must_suit(many, form, view.projection, self._runtime)
            must_overlap(many, view)
            found = chosen_of(view, Match(owner=uid, namespaces=frozenset(within) if within else None))
            return formed(
                found.match, found.records, form, sort_by=None, limit=None, unreadable=found.unreadable
            )

    @read
    def count(
        self,
        kind: AnyKey,
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        max_age: float | None = None,
        index: Mapping[str, object] | None = None,
    ) -> int:
        """Return how many objects there are; raise OutsideFilter if some of them might not be held.

        replicas = cache.count('pods', namespace=namespace, label={'app': name})
        """
        request = request_of(self._runtime, "count", kind, namespace, label, field, names)
        options = {"where": where, "max_age": max_age, "index": index}
        with self._reading("count", kind, max_age, request=request, options=options) as view:
            many = checked_many(Many("count", kind, view.resource, request, self._sync, options), where)
            must_be_kept(many, where, None, view.projection, self._runtime)
            must_be_covered(many, view)
            found = chosen_of(view, match_of(many, where, view, index))
            must_be_readable(many, found, self._runtime)
            return look(many, lambda: found.match.count(found.records))

    @overload
    async def fetch_list(
        self,
        kind: AnyName,
        *,
        as_: None = None,
        whole: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
        **asked: Unpack[Selection],  # As below.
    ) -> Objects[Obj]: ...
    @overload
    async def fetch_list(
        self,
        kind: AnyKey,
        *,
        as_: Literal["view"],
        whole: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
        **asked: Unpack[Selection],  # As below.
    ) -> Objects[BodyView]: ...
    @overload
    async def fetch_list(
        self,
        kind: type[Named],
        *,
        as_: None = None,
        whole: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
        **asked: Unpack[Selection],  # As below.
    ) -> builtins.list[Named]: ...
    @overload
    async def fetch_list(
        self,
        kind: AnyKey,
        *,
        as_: As[Made],
        whole: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
        **asked: Unpack[Selection],  # As below.
    ) -> builtins.list[Made]: ...
    @waiting
    async def fetch_list(
        self,
        kind: AnyKey,
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        sort_by: SortBy | None = None,
        limit: int | None = None,
        max_age: float | None = None,
        as_: Any = None,
        whole: bool = False,
        timeout: float | None = None,  # Retries are within it.  # noqa: ASYNC109
    ) -> Any:
        """Return all objects that there are, from the cache if it holds them all, and else from the server.

            claims = await cache.fetch_list('persistentvolumeclaims', namespace=namespace)

        The kind need not be declared. Nothing is remembered. With `whole=True` the server is asked where only
        a part of each object is kept. With `timeout=`, transient failures are retried for that many seconds;
        then the last one is raised.
        """
        form = wanted_form("fetch_list", kind, as_)
        request = request_of(self._runtime, "fetch_list", kind, namespace, label, field, names)
        options = {
            "where": where,
            "sort_by": sort_by,
            "limit": limit,
            "max_age": max_age,
            "as_": as_,
            "whole": whole,
            "timeout": timeout,
        }
        read = Read("fetch_list", kind, request, sync=self._sync, options=options)
        return await self._persistently(
            read,
            timeout,
            lambda: self._fetch_list(read, request, where, sort_by, limit, max_age, form, whole=whole),
        )

    async def _fetch_list(
        self,
        read: Read,
        request: Selector,
        where: Where | None,
        sort_by: SortBy | None,
        limit: int | None,
        max_age: float | None,
        form: Form | None,
        *,
        whole: bool,
    ) -> Any:
        """Return all objects, or raise why not, as of one attempt."""
        kind = read.kind
        with suppress(*_NOT_HERE, *([NotKept] if whole else [])):
            return self._selected(
                "fetch_list",
                kind,
                request,
                must_be_covered,
                where,
                sort_by,
                limit,
                max_age,
                form,
                whole=whole,
            )
        resource = await resource_of(self._runtime, read)
        many = Many("fetch_list", kind, resource, request, self._sync, read.options)
        projection = ALL if whole else projection_of(self._runtime, key_of(kind))
        checked_many(many, where, sort_by, limit)
        must_suit(many, form, projection, self._runtime)
        must_be_kept(many, where, sort_by, projection, self._runtime)
        records = await ask_many(
            self._runtime, many, projection, enough=limit if where is None and sort_by is None else None
        )
        return look(
            many, lambda: formed(Match(where=paths_of(where)), records, form, sort_by=sort_by, limit=limit)
        )
