"""A server, or a proxy in front of it, that ignores labelSelector or fieldSelector: no object outside the
filter is answered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from kopf_selectcache import Cached, OutsideFilter, Selector
from kopf_selectcache.core.protocol.messages import SLOW_SECONDS
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement, Sent
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.errors import Rejected, Stalled
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.stream_writer import Judgement, judge
from kopf_selectcache.testing.faults import IgnoreSelectors
from tests.faults.environment import until
from tests.secrets import Environment, caching, labelled, named, secret

WEB, DB = secret("web", app="web"), secret("db", app="db")
LABELS_IGNORED = (
    "secrets: the server, or a proxy in front of it, ignores the selector labels='app=web': "
    "the object 'shop/db' came, which app=web does not select: its label app is 'db'"
)


def typed(name: str, type_: str) -> dict[str, Any]:
    return secret(name, app="web") | {"type": type_, "data": {"password": "Y2FuYXJ5"}}


def holds_others(environment: Environment) -> bool:
    return any(
        record.name in ("db", "f") or record.labels.get("app") == "db"
        for record in environment.informer.state.store.records()[0]
    )


async def rejected(environment: Environment) -> None:
    """Wait until the cache is rejected, or has taken in what it must not."""
    await until(lambda: environment.informer.state.health is Health.REJECTED or holds_others(environment))
    assert not holds_others(environment)


def confirming(environment: Environment) -> list[str]:
    """Return the field selectors of the requests that confirmed a mismatch."""
    return [
        asked.query["fieldSelector"]
        for asked in environment.cluster.requests
        if "metadata.name=" in asked.query.get("fieldSelector", "")
    ]


def asked(environment: Environment) -> int:
    return sum(each.resource == "secrets" for each in environment.cluster.requests)


class Watcher:
    """Reads whatever it can read, and keeps the names."""

    def __init__(self, environment: Environment) -> None:
        self.seen: set[str] = set()
        self._environment = environment
        environment.informer.subscribe(self)

    def __call__(self, _: object) -> None:
        for read in (self._environment.cache.list, self._environment.cache.list_cached):
            with suppress(Rejected):
                self.seen.update(named(read("secrets", labels="app=web")))
        with suppress(Rejected, OutsideFilter):
            self.seen.update(
                named(
                    [found]
                    if (found := self._environment.cache.get("secrets", "db", namespace="shop", default=None))
                    else []
                )
            )


INITIAL = pytest.mark.parametrize("initial", ["pages", "stream"])


# ---- Labels.


@INITIAL
async def test_contract_1_where_labels_are_ignored_a_fresh_cache_is_rejected_and_answers_nothing(
    initial: str,
) -> None:
    async with caching("app=web", WEB, DB, initial=initial) as environment:
        ignored = environment.cluster.faults.add(IgnoreSelectors())
        watcher = Watcher(environment)
        await rejected(environment)
        assert environment.informer.state.message == LABELS_IGNORED
        for read in (
            lambda: environment.cache.list("secrets", labels="app=web"),
            lambda: environment.cache.list_cached("secrets"),
            lambda: environment.cache.get("secrets", "db", namespace="shop"),
        ):
            with pytest.raises(Rejected) as info:
                read()
            assert not info.value.transient
        ignored.release()
        await until(lambda: environment.informer.state.is_synced)
        watcher(None)
        assert watcher.seen == {"web"}


@INITIAL
async def test_contract_1_if_labels_are_ignored_later_reads_are_refused_until_a_list_fits(
    initial: str,
) -> None:
    async with caching("app=web", WEB, secret("moved", app="web"), initial=initial) as environment:
        await environment.cache.wait_synced()
        watcher = Watcher(environment)
        ignored = environment.cluster.faults.add(IgnoreSelectors())
        environment.cluster.cut("watch", "secrets")
        await until(lambda: len(environment.watches()) >= 2)
        environment.cluster.patch(secret("moved"), labelled(app="db"))
        await rejected(environment)
        with pytest.raises(Rejected):
            environment.cache.get("secrets", "web", namespace="shop")
        commits = environment.informer.state.reflectors[0].writer.commits
        before = len(environment.time.slept)
        await until(lambda: len(environment.time.slept) > before + 3)
        assert environment.informer.state.health is Health.REJECTED, (
            "a watch that is opened proves nothing: only a list that fits does"
        )
        ignored.release()
        await until(lambda: environment.informer.state.is_synced)
        assert environment.informer.state.reflectors[0].writer.commits == commits + 1
        assert named(environment.cache.list("secrets", labels="app=web")) == ["web"]
        assert watcher.seen <= {"web", "moved"}


async def test_contract_8_a_server_that_ignores_selectors_is_asked_slowly() -> None:
    async with caching("app=web", WEB, DB) as environment:
        environment.cluster.faults.add(IgnoreSelectors())
        await rejected(environment)
        before, count, began = asked(environment), len(environment.time.slept), environment.time.now
        await until(lambda: len(environment.time.slept) >= count + 10)
        assert all(slept >= SLOW_SECONDS for slept in environment.time.slept[count:])
        assert asked(environment) - before <= (environment.time.now - began) / SLOW_SECONDS + 2


async def test_an_object_is_no_mismatch_if_no_selector_was_sent() -> None:
    async with caching(Selector(), WEB, DB) as environment:
        environment.cluster.faults.add(IgnoreSelectors())
        await environment.cache.wait_synced()
        assert named(environment.cache.list("secrets")) == ["db", "web"]


async def test_names_that_share_a_watch_bring_others_which_are_neither_held_nor_compared() -> None:
    declared = Cached(Selector("app=web", names=["web", "other"], namespaces=["shop"]), share_watches=True)
    async with caching(declared, WEB, DB) as environment:
        environment.cluster.faults.add(IgnoreSelectors())
        await environment.cache.wait_synced()
        assert named(environment.cache.list_cached("secrets")) == ["web"]
        environment.cluster.create(secret("other", app="db"))
        await rejected(environment)


async def test_an_audit_and_a_list_of_metadata_compare_labels() -> None:
    async with caching("app=web", WEB, DB) as environment:
        await environment.cache.wait_synced()
        environment.cluster.faults.add(IgnoreSelectors(), verb="list")
        with pytest.raises(Rejected):
            await environment.cache.audit("secrets")
        assert environment.informer.counts.drift == 0


# ---- Fields.


@INITIAL
@pytest.mark.parametrize(
    "declared",
    [
        Selector(fields="type=Opaque"),
        Selector(fields="type!=example.com/a"),
        Cached(Selector(fields="type=Opaque"), drop=["type", "data"]),
    ],
    ids=str,
)
async def test_contract_1_a_field_that_the_server_confirms_to_be_ignored_is_a_mismatch(
    declared: Any, initial: str
) -> None:
    async with caching(
        declared, typed("web", "Opaque"), typed("db", "example.com/a"), initial=initial
    ) as environment:
        ignored = environment.cluster.faults.add(IgnoreSelectors(labels=False))
        await rejected(environment)
        filter_ = declared.filter if isinstance(declared, Cached) else declared
        assert isinstance(filter_, Selector)
        (field,) = filter_.terms
        assert environment.informer.state.message.endswith(
            f": the object 'shop/db' came, which {field} does not select"
        ), "and no value is told"
        opposite = str(FieldTerm(field.label, field.value, equal=not field.equal))
        assert set(confirming(environment)) == {f"metadata.name=db,{opposite}"}
        with pytest.raises(Rejected):
            environment.cache.list_cached("secrets")
        ignored.release()
        await until(lambda: environment.informer.state.is_synced)
        assert named(environment.cache.list_cached("secrets")) == ["web"]


async def test_a_field_that_changes_behind_a_watch_that_ignores_it_is_a_mismatch() -> None:
    name = "involvedObject.name"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "shop"},
        "involvedObject": {"name": "a", "namespace": "shop"},
    }
    async with caching(Selector(fields=f"{name}=a"), event, resource="v1/events") as environment:
        await environment.cache.wait_synced()
        environment.cluster.faults.add(IgnoreSelectors(labels=False))
        environment.cluster.cut("watch", "events")
        environment.cluster.create(
            event
            | {
                "metadata": {"name": "f", "namespace": "shop"},
                "involvedObject": {"name": "b", "namespace": "shop"},
            }
        )
        await until(
            lambda: environment.informer.state.health is Health.REJECTED or len(confirming(environment)) > 9
        )
        assert environment.informer.state.health is Health.REJECTED
        assert not holds_others(environment)
        assert confirming(environment)[0] == f"metadata.name=f,{name}!=a"


class Misread:
    """Reads a value that never satisfies the term."""

    paths = ()

    def __init__(self, term: FieldTerm) -> None:
        self._value = "misread" if term.equal else term.value

    def __call__(self, _: Mapping[str, Any]) -> str:
        return self._value


def misreading(*labels: str) -> Callable[..., Sent]:
    """Return what makes selectors of which these fields are read wrongly."""

    def of(
        cls: type[Sent], kind: Kind, requirements: Iterable[LabelRequirement], terms: Iterable[FieldTerm]
    ) -> Sent:
        return cls(
            tuple(requirements),
            tuple(
                (term, Misread(term) if term.label in labels else kind.fields[term.label].value)
                for term in terms
            ),
        )

    return classmethod(of)  # type: ignore[return-value]  # As it stands in the class.


@INITIAL
@pytest.mark.parametrize("wrong", [("type",), ("metadata.namespace", "type")], ids=str)
async def test_an_error_in_our_table_of_fields_is_logged_once_and_is_no_outage(
    wrong: tuple[str, ...], initial: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Sent, "of", misreading(*wrong))
    caplog.set_level(logging.WARNING, "kopf_selectcache")
    field = "type=Opaque,metadata.namespace!=infra"
    async with caching(
        Selector(fields=field), typed("web", "Opaque"), typed("db", "example.com/a"), initial=initial
    ) as environment:
        await until(lambda: environment.informer.state.health is not Health.SYNCING)
        assert environment.informer.state.is_synced
        assert named(environment.cache.list_cached("secrets")) == ["web"]
        environment.cluster.create(typed("late", "Opaque"))
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["late", "web"])
        assert len(confirming(environment)) == 2 * len(wrong), "later objects are not asked about"
        assert environment.informer.state.reflectors[0].has_misread
        assert not environment.informer.counts.failures
    assert [line.partition(" otherwise")[0] for line in caplog.messages] == [
        f"The server selects secrets by {label}" for label in wrong
    ]


async def test_an_error_in_our_table_of_fields_that_only_a_watch_meets_is_no_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sent, "of", misreading("type", "metadata.namespace"))
    async with caching(
        Selector(fields="type=Opaque,metadata.namespace!=infra"), typed("db", "example.com/a")
    ) as environment:
        await environment.cache.wait_synced()
        environment.cluster.create(typed("late", "Opaque"))
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["late"])
        assert len(environment.watches()) == 1
        assert not environment.informer.counts.failures


# The name is a sentence.
async def test_contract_1_an_error_in_our_table_of_fields_is_no_outage_although_the_object_changes_before_it_is_confirmed(  # noqa: E501
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sent, "of", misreading("involvedObject.name"))
    judged: list[Judgement] = []

    def about(name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e", "namespace": "shop"},
            "involvedObject": {"name": name, "namespace": "shop"},
        }

    async with caching(Selector(fields="involvedObject.name=a"), resource="v1/events") as environment:

        async def judging(*asked: Any) -> Judgement:
            if not judged:
                environment.cluster.patch(about("a"), {"involvedObject": {"name": "b"}})
            judged.append(await judge(*asked))
            return judged[-1]

        monkeypatch.setattr("kopf_selectcache.informer.stream_writer.judge", judging)
        await environment.cache.wait_synced()
        environment.cluster.create(about("a"))
        await until(
            lambda: (
                environment.informer.state.health is Health.REJECTED
                or environment.informer.state.reflectors[0].writer.commits == 2
            )
        )
        assert environment.informer.state.health is not Health.REJECTED
        assert set(judged) == {Judgement.UNCERTAIN}
        assert environment.cache.list_cached("v1/events") == []


async def test_where_it_is_not_certain_whether_a_field_is_ignored_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judgements = [Judgement.UNCERTAIN]

    async def judging(*asked: Any) -> Judgement:
        return judgements.pop() if judgements else await judge(*asked)

    monkeypatch.setattr("kopf_selectcache.informer.stream_writer.judge", judging)
    async with caching(
        Selector(fields="type=Opaque"), typed("web", "Opaque"), typed("db", "example.com/a")
    ) as environment:
        environment.cluster.faults.add(IgnoreSelectors(), times=1)
        await until(lambda: environment.informer.state.is_synced)
        assert environment.informer.counts.failures == {"garbled": 1}
        assert named(environment.cache.list_cached("secrets")) == ["web"]


# ---- Reads that ask the server.


async def test_fetch_list_answers_nothing_outside_of_its_labels() -> None:
    async with caching("app=none", WEB, DB) as environment:
        await environment.cache.wait_synced()
        ignored = environment.cluster.faults.add(IgnoreSelectors(), verb="list")
        with pytest.raises(Rejected) as info:
            await environment.cache.fetch_list("secrets", namespace="shop", labels="app=web", timeout=60)
        assert not info.value.transient
        with pytest.raises(Stalled):
            await environment.cache.fetch_list("secrets", namespace="shop", names=["web"])
        ignored.release()
        assert named(await environment.cache.fetch_list("secrets", namespace="shop", labels="app=web")) == [
            "web"
        ]
