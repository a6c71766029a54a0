"""What a cache tells of itself: what it covers, how fresh and how large it is, what a read would do; and what
can be done about it.

Reads no object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kopf_selectcache._errors import NotDeclared, NotKept, NotSynced
from kopf_selectcache.core.protocol.query import written
from kopf_selectcache.core.store.index_spec import Function, Indexed
from kopf_selectcache.core.store.indexes import WORTH
from kopf_selectcache.core.store.projection import Path
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.audit import Audit
from kopf_selectcache.informer.index_builder import Failed, Taken
from kopf_selectcache.selectors.kind_keys import AnyKey
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.settings.planner import questions

from .checks import (
    added,
    another,
    checked_many,
    feed_of,
    match_of,
    missing_index,
    must_be_kept,
    of_this,
    request_of,
    unindexed,
    verdict_of,
)
from .explanation import Explanation
from .live import ask_audit
from .matcher import Field, Label, Namespaces, Where
from .reading import read, waiting
from .request import Many, Read
from .stats import Stats, weighed
from .waits import Waiting


class Telling(Waiting):
    """A part of what handlers get as `cache`."""

    @read
    def age(self, kind: AnyKey) -> float:
        """Return how many seconds ago the server last confirmed what is held.

        if cache.age('pods') > 60:
            logger.warning('acting on what the cluster was a minute ago')
        """
        with self._reading("age", kind):
            age = feed_of(self._runtime, kind).age()
            assert age is not None, f"{kind!r} is synced, and was never heard of"
            return age

    @read
    def scope(self, kind: AnyKey) -> Selector | AnyOf:
        """Return what is covered: the `branches`, each with its `namespaces`, `names`, `label` and `field`;
        None is all of them.

        print(cache.scope('pods'))    # label='app=web', namespaces=['shop']
        """
        try:
            return feed_of(self._runtime, kind).filter
        except (NotDeclared, NotSynced) as error:
            raise of_this(error, Read("scope", kind, sync=self._sync), self._runtime) from None

    @read
    def explain(
        self,
        kind: AnyKey,
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        index: Mapping[str, object] | None = None,
    ) -> Explanation:
        """Say whether the filter covers a read, why not, and what would be looked at or asked for. Reads
        nothing.

        print(cache.explain('pods', label='app in (web,db)'))
        """
        request = request_of(self._runtime, "explain", kind, namespace, label, field, names)
        with self._reading("explain", kind, request=request) as view:
            many = checked_many(
                Many("explain", kind, view.resource, request, self._sync, {"where": where, "index": index}),
                where,
            )
            lacks = ""
            try:
                must_be_kept(many, where, None, view.projection, self._runtime)
            except NotKept as error:
                lacks = str(error)
            match = match_of(many, where, view, index)
            chosen = view.chosen(match.lookup, asking=False)
            return Explanation(
                verdict=verdict_of(request, view),
                looks_at=chosen.size,
                decodes=match.left(chosen.rest).decodes,
                by=chosen.by,
                indexes=str(chosen.wanted or ""),
                missing=missing_index(many, match, view) if chosen.size > WORTH else "",
                nowhere=tuple(
                    str(index)
                    for index, _ in (*match.values, *match.lookup.where)
                    if _is_nowhere(index, view.store.records()[0])
                ),
                asks=tuple(written(path, query) for path, query in questions(view.resource, request)),
                partial=str(view.projection),
                lacks=lacks,
            )

    @read
    def stats(self, kind: AnyKey) -> Stats:
        """Return how many objects are held, and what they and each index take, in bytes.

            print(cache.stats('pods'))

        It looks at all that is held, and at each value of each index: now and then, and not for each object
        that is handled.
        """
        with self._reading("stats", kind) as view:
            return weighed(view.store)

    @waiting
    async def add_index(self, kind: AnyKey, **indexes: Path | Function) -> None:
        """Index what is held, and will be held, by a path or a function of an object; return once that is
        done.

            await cache.add_index('pods', image=images)
            pods = cache.held('pods', index={'image': 'nginx:1'})

        It is as if it were declared, `Cached(..., index={'image': images})`, but for what it looks at, which
        is what is kept: a path that is dropped, or may be changed by a transform, raises NotKept. A function
        that fails for an object that is held is an error, and none of them is added; one that comes later,
        and for which it fails, is held without a value.

        To add an index that is there does nothing. Define its function once, outside of the handler: a
        lambda, or a function within a function, is another one with each call, and would be another index of
        the same name.
        """
        with self._reading("add_index", kind) as view:
            feed = feed_of(self._runtime, kind)
            many = Many("add_index", kind, view.resource, Selector(), self._sync)
            try:
                await feed.indexing.add(added(many, indexes, view, self._runtime))
            except Taken as taken:
                raise another(many, taken.by.name, taken.by) from None
            except Failed as failed:
                raise unindexed(many, failed.name, failed.record, failed.why) from None

    @waiting
    async def audit(self, kind: AnyKey) -> Audit:
        """Compare all that is held with the server, now; what has drifted is told, and listed anew at once.

            found = await cache.audit('pods')
            if not found:
                logger.warning('the cache of pods: %s', found)

        It is done regularly without being asked for (`audit_interval` of the settings): a list of names and
        versions.
        """
        with self._reading("audit", kind) as view:
            return await ask_audit(
                self._runtime,
                feed_of(self._runtime, kind),
                Many("audit", kind, view.resource, Selector(), self._sync),
            )


def _is_nowhere(index: Indexed, records: Sequence[Record]) -> bool:
    """Whether it is known that none of them has a value."""
    known = map(index.known, records)  # One that has a value ends it.
    return bool(records) and all(
        values is not None and not any(value is not None for value in values) for values in known
    )
