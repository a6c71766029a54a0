"""The reads that answer at once, from one snapshot of a kind. A cache has them, and so does a snapshot of
several kinds.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Never, TypeVar, Unpack, overload

from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName

from . import snapshots
from ._at_least import has_reached
from .errors import NotFound, OutsideFilter, is_there
from .formats.formats import RAISE, As, AsView, C, Else, Made, quick
from .formats.lazy_list import Objects
from .formats.views import BodyView
from .matcher import AsOf, CountOptions, Get, Name, Obj, OutsideOptions, ReadOptions
from .misuse import misuse, public_name, same_types
from .request import Request, owner_of
from .sides import OutsideObject, hiding
from .snapshots import Access, Snapshot

_T = TypeVar("_T")

_AS_OF = AsOf.__optional_keys__
_LISTING = ReadOptions.__optional_keys__
_COUNTING = CountOptions.__optional_keys__
_PLAIN = {"labels", "namespace"}


class Reads:
    """The reads of one object and of several that need no request. They are safe in any thread."""

    _access: Access

    # ---- One object.

    @overload
    def get(
        self, kind: AnyName, name: Name, *, default: Else = RAISE, as_: None = None, **options: Unpack[Get]
    ) -> Obj | Else: ...
    @overload
    def get(
        self, kind: AnyKey, name: Name, *, default: Else = RAISE, as_: AsView, **options: Unpack[Get]
    ) -> BodyView | Else: ...
    @overload
    def get(
        self, kind: type[C], name: Name, *, default: Else = RAISE, as_: None = None, **options: Unpack[Get]
    ) -> C | Else: ...
    @overload
    def get(
        self, kind: AnyKey, name: Name, *, default: Else = RAISE, as_: As[Made], **options: Unpack[Get]
    ) -> Made | Else: ...
    @public_name
    def get(
        self,
        kind: AnyKey,
        name: Name,
        *extra: Never,
        namespace: str | None = None,
        default: Any = RAISE,
        as_: Any = None,
        **options: Unpack[AsOf],
    ) -> Any:
        """Return one object; raise NotFound if it is proved absent, OutsideFilter if it may exist and not be
        cached.

            pod = cache.get('pods', 'web-1', namespace=namespace)
            config = cache.get('configmaps', name, namespace=namespace, default=None)
            pod = cache.get('pods', key, as_='view')      # read-only, also as Kopf's body
            pod = cache.get(V1Pod, key)                   # as kubernetes' or pykube's class

        The default is returned for an object that is proved absent, never for one that is only not cached.
        """
        if extra or (options and not options.keys() <= _AS_OF):
            given = {"namespace": namespace, "default": default, **options}
            raise misuse(Reads.get, self, kind, name, *extra, **given)
        make = Record.decode if as_ is None else quick(as_)
        if make is not None and (not options or self._is_reached(kind, **options)):
            lossless = as_ is not None and as_ != "view"
            fast = self._access.get_fast("get", kind, name, namespace, make, lossless=lossless)
            if fast is not None:
                return fast
        request = self._access.requests.one("get", kind, name, namespace, default=default, as_=as_, **options)
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
        name: Name,
        *extra: Never,
        namespace: str | None = None,
        **options: Unpack[AsOf],
    ) -> bool:
        """Return True if the object is cached, False if it is proved absent; else raise the errors of `get`.

        if not cache.exists('secrets', 'ca-bundle', namespace='infra'):
            raise kopf.TemporaryError('no CA yet')
        """
        if extra or (options and not options.keys() <= _AS_OF):
            raise misuse(Reads.exists, self, kind, name, *extra, namespace=namespace, **options)
        is_plain = not options or self._is_reached(kind, **options)
        if is_plain and self._access.get_fast("exists", kind, name, namespace, lambda _: True):
            return True
        try:
            request = self._access.requests.one("exists", kind, name, namespace, **options)
            self._access.read(request, snapshots.get_record)
        except (NotFound, OutsideFilter) as error:
            return is_there(error)
        return True

    def _is_reached(self, kind: AnyKey, *, max_age: float | None = None, at_least: object = None) -> bool:
        """Return True if it is plain that the cache is as new as a read wants."""
        return max_age is None and (at_least is None or has_reached(self._access.runtime, kind, at_least))

    # ---- Several objects.

    def _several(
        self,
        verb: str,
        kind: AnyKey,
        extra: Collection[Never],
        taken: AbstractSet[str],
        options: Mapping[str, Any],
        answer: Callable[[Request, Snapshot], _T],
        as_: object = None,
    ) -> _T:
        """Answer a read of several objects, which takes these options."""
        requests, request = self._access.requests, None
        if not extra and options.keys() <= _PLAIN:
            request = requests.plain(verb, kind, options.get("labels"), options.get("namespace"), as_)
        if request is None:
            if extra or not options.keys() <= taken:
                raise misuse(getattr(Reads, verb), self, kind, *extra, **options)
            request = requests.several(verb, kind, {**options, "as_": as_})
        return self._access.read(request, answer)

    @overload
    def list(self, kind: AnyName, *, as_: None = None, **options: Unpack[ReadOptions]) -> Objects[Obj]: ...
    @overload
    def list(self, kind: AnyKey, *, as_: AsView, **options: Unpack[ReadOptions]) -> Objects[BodyView]: ...
    @overload
    def list(
        self, kind: type[C], *, as_: None = None, **options: Unpack[ReadOptions]
    ) -> builtins.list[C]: ...
    @overload
    def list(self, kind: AnyKey, *, as_: As[Made], **options: Unpack[ReadOptions]) -> builtins.list[Made]: ...
    @public_name
    def list(
        self,
        kind: AnyKey,
        *extra: Never,
        as_: Any = None,
        **options: Unpack[ReadOptions],
    ) -> Any:
        """Return all objects that there are; raise OutsideFilter if some of them might not be cached.

            pods = cache.list('pods', namespace=namespace, labels='app=web,tier=gold')
            oldest = cache.list('jobs', labels={'run': run}, sort_by='metadata.creationTimestamp', limit=1)

        `labels` and `fields` are text, dicts, or selectors. `where` compares values at any path, after the
        selection: it never makes a read complete; nor does `index`, which compares the values of declared
        indexes. The order is unspecified without `sort_by`. `limit=0` returns no object, after all checks.
        Each object is made when it is reached (`Objects`), and `.keys()` makes none.
        """
        return self._several("list", kind, extra, _LISTING, options, snapshots.list_objects, as_)

    @same_types(list)  # The method above.  # noqa: A003
    @public_name
    def list_cached(
        self,
        kind: AnyKey,
        *extra: Never,
        as_: Any = None,
        **options: Unpack[ReadOptions],
    ) -> Any:
        """Return those of the cached objects that match; raise OutsideFilter if none can ever be cached.

            mine = cache.list_cached('pods', namespace=namespace, labels={'instance': name})

            pods = cache.list_cached('pods', owner=body)      # with controller=True: those that it controls

        There may be others that match, outside the filter: where that matters, use `list`. An owner is an
        object that has a uid. Only its own namespace is read, if it has one.
        """
        return self._several("list_cached", kind, extra, _LISTING, options, snapshots.list_held, as_)

    @public_name
    def count(self, kind: AnyKey, *extra: Never, **options: Unpack[CountOptions]) -> int:
        """Return how many objects there are; raise OutsideFilter if some of them might not be cached.

        replicas = cache.count('pods', namespace=namespace, labels={'app': name})
        """
        return self._several("count", kind, extra, _COUNTING, options, snapshots.count_objects)

    @public_name
    def list_outside(
        self, kind: AnyKey, *extra: Never, **options: Unpack[OutsideOptions]
    ) -> builtins.list[OutsideObject]:
        """Return the objects outside of the filter of a split cache that match, with what each fails.

            for pod in cache.list_outside('pods', owner=body):
                logger.warning(f'{pod.name} is owned, and lacks {pod.wanted}')

        Raise OutsideFilter if the cache has no metadata of all of them.
        """
        uid, within = owner_of("list_outside", options.pop("owner")) if "owner" in options else (None, None)
        if options.get("namespace") is not None:
            within = None
        elif within is not None:
            options["namespace"] = within
        taken = OutsideOptions.__optional_keys__
        return self._several("list_outside", kind, extra, taken, options, hiding(uid, within))
