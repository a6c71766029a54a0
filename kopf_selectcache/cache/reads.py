"""The reads that answer at once, from one snapshot of a kind. A cache has them, and so does a snapshot of
several kinds.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Never, Unpack, cast, overload

from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName

from . import snapshots
from ._at_least import has_reached
from .errors import NotFound, OutsideFilter, is_there
from .formats.formats import quick
from .formats.lazy_list import Objects, in_pages
from .formats.views import BodyView
from .matcher import AsOf, Field, Label, Namespaces, Obj, ReadOptions, SortBy, Where
from .misuse import misuse, public_name
from .request import RAISE, Request, owner_of, replace, require_size, with_options
from .sides import HiddenObject, counting, hiding
from .snapshots import Access, list_owned

if TYPE_CHECKING:
    from .formats.formats import As, AsView, Default, Made, Named


class Reads:
    """The reads of one object and of several that need no request. They are safe in any thread."""

    _access: Access

    # ---- One object.

    @overload
    def get(
        self,
        kind: AnyName,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        as_: None = None,
        **options: Unpack[AsOf],
    ) -> Obj | Default: ...
    @overload
    def get(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        as_: AsView,
        **options: Unpack[AsOf],
    ) -> BodyView | Default: ...
    @overload
    def get(
        self,
        kind: type[Named],
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        as_: None = None,
        **options: Unpack[AsOf],
    ) -> Named | Default: ...
    @overload
    def get(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        as_: As[Made],
        **options: Unpack[AsOf],
    ) -> Made | Default: ...
    @public_name
    def get(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *extra: Never,
        default: Any = RAISE,
        max_age: float | None = None,
        at_least: object = None,
        as_: Any = None,
        **unknown: Never,
    ) -> Any:
        """Return one object; raise NotFound if it is proved absent, OutsideFilter if it may exist and not be
        held.

            pod = cache.get('pods', 'web-1', namespace)
            config = cache.get('configmaps', name, namespace, default=None)
            pod = cache.get('pods', 'web-1', namespace, as_='view')      # read-only, also as Kopf's body
            pod = cache.get(V1Pod, 'web-1', namespace)                   # as kubernetes' or pykube's class

        The default is returned for an object that is proved absent, never for one that is only not held.
        """
        if extra or unknown:
            raise misuse(Reads.get, self, kind, name, namespace, *extra, **unknown)
        if (
            max_age is None
            and (at_least is None or has_reached(self._access.runtime, kind, at_least))
            and (make := Record.decode if as_ is None else quick(as_)) is not None
        ):
            lossless = as_ is not None and as_ != "view"
            fast = self._access.get_fast("get", kind, name, namespace, make, lossless=lossless)
            if fast is not None:
                return fast
        request = self._access.requests.one(
            "get", kind, name, namespace, default=default, max_age=max_age, at_least=at_least, as_=as_
        )
        try:
            return self._access.read(request, snapshots.get_object)
        except NotFound:
            if default is RAISE:
                raise
            return default

    @public_name
    def exists(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *extra: Never,
        max_age: float | None = None,
        at_least: object = None,
        **unknown: Never,
    ) -> bool:
        """Return True if the object is held, False if it is proved absent; else raise the errors of `get`.

        if not cache.exists('secrets', 'ca-bundle', 'infra'):
            raise kopf.TemporaryError('no CA yet')
        """
        if extra or unknown:
            raise misuse(Reads.exists, self, kind, name, namespace, *extra, **unknown)
        is_plain = max_age is None and (at_least is None or has_reached(self._access.runtime, kind, at_least))
        if is_plain and self._access.get_fast("exists", kind, name, namespace, lambda _: True):
            return True
        try:
            request = self._access.requests.one(
                "exists", kind, name, namespace, max_age=max_age, at_least=at_least
            )
            self._access.read(request, snapshots.get_record)
        except (NotFound, OutsideFilter) as error:
            return is_there(error)
        return True

    # ---- Several objects.

    @overload
    def list(
        self, kind: AnyKey, *, keys_only: Literal[True], **options: Unpack[ReadOptions]
    ) -> builtins.list[tuple[str, str]]: ...
    @overload
    def list(self, kind: AnyName, *, as_: None = None, **options: Unpack[ReadOptions]) -> Objects[Obj]: ...
    @overload
    def list(self, kind: AnyKey, *, as_: AsView, **options: Unpack[ReadOptions]) -> Objects[BodyView]: ...
    @overload
    def list(
        self, kind: type[Named], *, as_: None = None, **options: Unpack[ReadOptions]
    ) -> builtins.list[Named]: ...
    @overload
    def list(self, kind: AnyKey, *, as_: As[Made], **options: Unpack[ReadOptions]) -> builtins.list[Made]: ...
    @public_name
    def list(
        self,
        kind: AnyKey,
        *extra: Never,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        sort_by: SortBy | None = None,
        limit: int | None = None,
        max_age: float | None = None,
        at_least: object = None,
        as_: Any = None,
        keys_only: bool = False,
        index: Mapping[str, object] | None = None,
        **unknown: Never,
    ) -> Any:
        """Return all objects that there are; raise OutsideFilter if some of them might not be held.

            pods = cache.list('pods', namespace=namespace, label='app=web,tier=gold')
            oldest = cache.list('jobs', label={'run': run}, sort_by='metadata.creationTimestamp', limit=1)

        `label` and `field` are text, dicts, or selectors. `where` compares values at any path, after the
        selection: it never makes a read complete; nor does `index`, which compares the values of declared
        indexes. The order is unspecified without `sort_by`. `limit=0` returns no object, after all checks.
        Each object is made when reached (`Objects`); with `keys_only=True` namespaces and names are returned.
        """
        if extra or unknown:
            raise misuse(Reads.list, self, kind, *extra, **unknown)
        request = self._access.requests.several(
            "list",
            kind,
            label,
            field,
            names,
            namespace,
            where=where,
            index=index,
            sort_by=sort_by,
            limit=limit,
            max_age=max_age,
            at_least=at_least,
            as_=as_,
            keys_only=keys_only,
        )
        found = self._access.read(request, snapshots.list_objects)
        return cast("Objects[Any]", found).keys() if keys_only else found

    @overload
    def held(
        self, kind: AnyKey, *, keys_only: Literal[True], **options: Unpack[ReadOptions]
    ) -> builtins.list[tuple[str, str]]: ...
    @overload
    def held(self, kind: AnyName, *, as_: None = None, **options: Unpack[ReadOptions]) -> Objects[Obj]: ...
    @overload
    def held(self, kind: AnyKey, *, as_: AsView, **options: Unpack[ReadOptions]) -> Objects[BodyView]: ...
    @overload
    def held(
        self, kind: type[Named], *, as_: None = None, **options: Unpack[ReadOptions]
    ) -> builtins.list[Named]: ...
    @overload
    def held(self, kind: AnyKey, *, as_: As[Made], **options: Unpack[ReadOptions]) -> builtins.list[Made]: ...
    @public_name
    def held(
        self,
        kind: AnyKey,
        *extra: Never,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        sort_by: SortBy | None = None,
        limit: int | None = None,
        max_age: float | None = None,
        at_least: object = None,
        as_: Any = None,
        keys_only: bool = False,
        index: Mapping[str, object] | None = None,
        **unknown: Never,
    ) -> Any:
        """Return those of the held objects that match; raise OutsideFilter if none can ever be held.

            mine = cache.held('pods', namespace=namespace, label={'instance': name})

        There may be others that match, outside the filter: where that matters, use `list`. `limit=0` is none.
        """
        if extra or unknown:
            raise misuse(Reads.held, self, kind, *extra, **unknown)
        request = self._access.requests.several(
            "held",
            kind,
            label,
            field,
            names,
            namespace,
            where=where,
            index=index,
            sort_by=sort_by,
            limit=limit,
            max_age=max_age,
            at_least=at_least,
            as_=as_,
            keys_only=keys_only,
        )
        found = self._access.read(request, snapshots.list_held)
        return cast("Objects[Any]", found).keys() if keys_only else found

    @overload
    def pages(
        self, kind: AnyName, *, size: int = ..., as_: None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[builtins.list[Obj]]: ...
    @overload
    def pages(
        self, kind: AnyKey, *, size: int = ..., as_: AsView, **options: Unpack[ReadOptions]
    ) -> Iterator[builtins.list[BodyView]]: ...
    @overload
    def pages(
        self, kind: type[Named], *, size: int = ..., as_: None = None, **options: Unpack[ReadOptions]
    ) -> Iterator[builtins.list[Named]]: ...
    @overload
    def pages(
        self, kind: AnyKey, *, size: int = ..., as_: As[Made], **options: Unpack[ReadOptions]
    ) -> Iterator[builtins.list[Made]]: ...
    @public_name
    def pages(
        self,
        kind: AnyKey,
        *extra: Never,
        size: int = 500,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        sort_by: SortBy | None = None,
        limit: int | None = None,
        max_age: float | None = None,
        at_least: object = None,
        as_: Any = None,
        index: Mapping[str, object] | None = None,
        **unknown: Never,
    ) -> Any:
        """Yield the held objects that match, as lists of `size`, of one generation: those of `held`.

            for pods in cache.pages('pods', size=100):
                send(pods)

        Each list is made when it is reached, and not kept.
        """
        if extra or unknown:
            raise misuse(Reads.pages, self, kind, *extra, **unknown)
        require_size(size)
        request = self._access.requests.several(
            "pages",
            kind,
            label,
            field,
            names,
            namespace,
            where=where,
            index=index,
            sort_by=sort_by,
            limit=limit,
            max_age=max_age,
            at_least=at_least,
            as_=as_,
        )
        return in_pages(cast("Objects[Any]", self._access.read(request, snapshots.list_held)), size)

    @overload
    def owned(
        self, owner: object, kind: AnyName, *, as_: None = None, **options: Unpack[AsOf]
    ) -> Objects[Obj]: ...
    @overload
    def owned(
        self, owner: object, kind: AnyKey, *, as_: AsView, **options: Unpack[AsOf]
    ) -> Objects[BodyView]: ...
    @overload
    def owned(
        self, owner: object, kind: type[Named], *, as_: None = None, **options: Unpack[AsOf]
    ) -> builtins.list[Named]: ...
    @overload
    def owned(
        self, owner: object, kind: AnyKey, *, as_: As[Made], **options: Unpack[AsOf]
    ) -> builtins.list[Made]: ...
    @public_name
    def owned(
        self,
        owner: object,
        kind: AnyKey,
        *extra: Never,
        max_age: float | None = None,
        at_least: object = None,
        as_: Any = None,
        **unknown: Never,
    ) -> Any:
        """Return those of the held objects that are owned by this one, by its uid.

            pods = cache.owned(body, 'pods')

        As with `held`, there may be others outside the filter.
        """
        if extra or unknown:
            raise misuse(Reads.owned, self, owner, kind, *extra, **unknown)
        uid, namespace = owner_of("owned", owner)
        request = Request(verb="owned", kind=kind, uid=uid, namespace=namespace)
        options = {"max_age": max_age, "at_least": at_least, "as_": as_}
        return self._access.read(with_options(request, options), list_owned)

    @public_name
    def count(
        self,
        kind: AnyKey,
        *extra: Never,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        max_age: float | None = None,
        at_least: object = None,
        index: Mapping[str, object] | None = None,
        outside: bool = False,
        **unknown: Never,
    ) -> int:
        """Return how many objects there are; raise OutsideFilter if some of them might not be held.

            replicas = cache.count('pods', namespace=namespace, label={'app': name})

        With `outside=True`, a split cache counts the objects outside of the filter as well.
        """
        if extra or unknown:
            raise misuse(Reads.count, self, kind, *extra, **unknown)
        request = self._access.requests.several(
            "count",
            kind,
            label,
            field,
            names,
            namespace,
            where=where,
            index=index,
            max_age=max_age,
            at_least=at_least,
        )
        if outside:
            request = replace(request, outside=True, is_plain=False)
        return self._access.read(request, counting(outside=outside))

    @public_name
    def hidden(
        self,
        kind: AnyKey,
        *extra: Never,
        owner: object = None,
        namespace: Namespaces = None,
        label: Label = None,
        names: Collection[str] | None = None,
        max_age: float | None = None,
        at_least: object = None,
        **unknown: Never,
    ) -> builtins.list[HiddenObject]:
        """Return the objects outside of the filter of a split cache that match, with what each fails.

            for pod in cache.hidden('pods', owner=body):
                logger.warning(f'{pod.name} is owned, and lacks {pod.wanted}')

        Raise OutsideFilter if the cache has no metadata of all of them.
        """
        if extra or unknown:
            raise misuse(Reads.hidden, self, kind, *extra, **unknown)
        uid, within = (None, None) if owner is None else owner_of("hidden", owner)
        within = within if namespace is None else None
        request = self._access.requests.several(
            "hidden",
            kind,
            label,
            None,
            names,
            namespace if within is None else within,
            max_age=max_age,
            at_least=at_least,
        )
        return self._access.read(request, hiding(uid, within))
