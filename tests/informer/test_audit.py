"""Audits: a comparison finds events that the server lost; they are logged, counted, and repaired."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from kopf_selectcache import Forbidden, Key, Selector, StateError
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.pager import EMPTY_PAGES
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.errors import Stalled
from kopf_selectcache.informer import environment as injected
from kopf_selectcache.informer.audit import audited
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.settings.planner import Stream
from kopf_selectcache.testing.faults import (
    Disconnect,
    DropEvents,
    Fault,
    MalformedJSON,
    Refuse,
    Silence,
    TooLargeVersion,
)
from tests.cache.environment import builtin
from tests.core.writers import writers
from tests.faults.environment import Time, until
from tests.rows import each_row
from tests.secrets import Environment, caching, labelled, named, secret

EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["infra"])]
FAILURES = [Refuse(410), MalformedJSON(), Disconnect()]
OBJECTS = [secret(name, app="web") for name in ("kept", "changed", "relabelled", "deleted", "recreated")]


async def lose(environment: Environment) -> None:
    """Let things happen of which the watch says nothing, and nevertheless goes on."""
    await environment.cache.wait_synced()
    await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
    environment.cluster.faults.add(DropEvents(), verb="watch", resource="secrets", namespace="shop")
    environment.cluster.cut("watch", "secrets", namespace="shop")
    await until(lambda: len(environment.watches()) == 3)
    cluster = environment.cluster
    cluster.patch(secret("changed"), labelled(seen="yes"))
    cluster.patch(secret("relabelled"), labelled(app=None))
    cluster.delete(secret("deleted"))
    cluster.delete(secret("recreated"))
    cluster.create(secret("recreated", app="web"), secret("created", app="web"), secret("other"))
    environment.cluster.faults.clear()
    version = environment.informer.state.version
    cluster.bookmark()
    await until(lambda: environment.informer.state.version != version)


async def test_changes_that_the_watch_has_lost_are_found_and_repaired(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with caching(EITHER, *OBJECTS, secret("gold", "infra", tier="gold")) as environment:
        await lose(environment)
        assert named(environment.cache.list_cached("secrets", namespace="shop")) == [
            "changed",
            "deleted",
            "kept",
            "recreated",
            "relabelled",
        ]
        found = await environment.cache.audit("secrets")
        assert not found
        assert found.objects == 5
        assert found.missing == (Key("created", namespace="shop"),)
        assert sorted(found.extra) == [Key("deleted", namespace="shop"), Key("relabelled", namespace="shop")]
        assert sorted(found.outdated) == [
            Key("changed", namespace="shop"),
            Key("recreated", namespace="shop"),
        ]
        await until(
            lambda: (
                named(environment.cache.list_cached("secrets", namespace="shop"))
                == ["changed", "created", "kept", "recreated"]
            )
        )
        await until(lambda: len(environment.watches()) == 4)
        assert await environment.cache.audit("secrets")
        assert (
            environment.informer.counts.audits,
            environment.informer.counts.drift,
            environment.informer.counts.relists,
        ) == (4, 5, {"audit": 1})
    (line,) = [line for line in caplog.messages if "drifted" in line]
    assert line.startswith(
        "The cache of secrets with labels='app=web', namespaces=['shop'] has drifted from the server: 1"
        " object is missing (shop/created), 2 "
    )
    assert line.endswith(". It is listed again.")


async def test_it_is_done_again_and_again_without_being_asked_for() -> None:
    async with caching(EITHER, *OBJECTS, audit_interval=400.0) as environment:
        began = environment.time.now
        await until(lambda: environment.informer.counts.audits >= 6)
        assert environment.time.now - began >= 3 * 400.0 * 0.5
        assert set(environment.time.slept) >= {600.0}
        await lose(environment)
        await until(
            lambda: (
                environment.informer.counts.drift
                and named(environment.cache.list_cached("secrets"))
                == ["changed", "created", "kept", "recreated"]
            )
        )


@pytest.mark.parametrize("page_limit", [1, 2, 100])
async def test_an_audit_lists_names_and_versions_page_by_page_at_the_version_held(page_limit: int) -> None:
    async with caching("app=web", *OBJECTS, page_limit=page_limit) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced)
        before, version = len(tuple(environment.cluster.requests)), environment.informer.state.version
        environment.cluster.create(secret("unheard", "infra"))
        assert str(await environment.cache.audit("secrets")) == "all 5 are as the server has them"
        asked = [each for each in tuple(environment.cluster.requests)[before:] if each.verb == "list"]
        assert len(asked) == -(-5 // page_limit)
        assert (asked[0].query["resourceVersion"], asked[0].query["resourceVersionMatch"]) == (
            version,
            "Exact",
        )
        assert all(
            each.query["labelSelector"] == "app=web" and each.query["limit"] == str(page_limit)
            for each in asked
        )


async def test_an_audit_that_cannot_be_done_says_why_and_changes_nothing() -> None:
    async with caching(EITHER, *OBJECTS) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced)
        refused: dict[int, type[StateError]] = {403: Forbidden, 410: Stalled, 500: Stalled}
        for code, error in refused.items():
            environment.cluster.faults.add(Refuse(code), verb="list", resource="secrets", times=1)
            with pytest.raises(error) as info:
                await environment.cache.audit("secrets")
            assert info.value.code == code
        assert len(environment.cache.list_cached("secrets")) == 5
        assert environment.informer.counts.drift == 0


@pytest.mark.parametrize(("before_1_34", "code"), [(False, 504), (True, 500)])
async def test_a_server_that_is_older_than_the_cache_was_restored_and_is_listed_anew(
    caplog: pytest.LogCaptureFixture, before_1_34: bool, code: int
) -> None:
    """The watch says nothing of it: it is silent, as it is on a server without bookmarks that has nothing to
    say."""
    async with caching("app=web", *OBJECTS) as environment:
        await environment.cache.wait_synced()
        backup = environment.cluster.backup()
        environment.cluster.create(secret("lost", app="web"))
        for seen in range(9):
            environment.cluster.patch(secret("changed"), labelled(seen=str(seen)))
        await until(lambda: len(environment.cache.list_cached("secrets", labels={"seen": "8"})) == 1)
        environment.cluster.restore(backup)
        await until(lambda: len(environment.watches()) == 2 and environment.informer.state.is_synced)
        if before_1_34:
            environment.cluster.faults.add(
                TooLargeVersion(before_1_34=True), verb="list", resource="secrets", times=1
            )
        with pytest.raises(Stalled) as info:
            await environment.cache.audit("secrets")
        assert info.value.code == code
        await until(lambda: len(environment.watches()) == 3)
        assert named(environment.cache.list_cached("secrets")) == sorted(named(OBJECTS))
        assert named(environment.cache.list_cached("secrets", labels={"seen": "8"})) == []
        assert await environment.cache.audit("secrets")
    assert (
        "The server of secrets went back to an older state, so its cache is listed again." in caplog.messages
    )


async def test_however_many_ask_at_once_one_audit_is_made_and_one_relist_ordered() -> None:
    async with caching(EITHER, *OBJECTS) as environment:
        await lose(environment)
        found = await asyncio.gather(*(environment.cache.audit("secrets") for _ in range(60)))
        assert {each.drift for each in found} == {5}
        assert environment.informer.counts.audits == 2
        await until(lambda: environment.informer.counts.relists == {"audit": 1})


async def test_a_relist_is_interrupted_neither_by_another_audit_nor_by_a_gap_of_the_loop() -> None:
    async with caching(EITHER, *OBJECTS) as environment:
        await lose(environment)
        listed = environment.cluster.faults.add(
            Silence(),
            verb="list",
            resource="secrets",
            where=lambda asked: "resourceVersionMatch" not in asked.query,
        )
        await environment.cache.audit("secrets")
        environment.runtime.after_gap(100.0)
        await listed.hit()
        for _ in range(3):
            await environment.cache.audit("secrets")
            environment.runtime.after_gap(100.0)
        listed.release()
        environment.cluster.faults.clear()
        await until(
            lambda: (
                named(environment.cache.list_cached("secrets")) == ["changed", "created", "kept", "recreated"]
            )
        )
        for watches in (3, 4):
            await until(
                # It is called before the loop continues.
                lambda: sum(asked.namespace == "shop" for asked in environment.watches()) == watches  # noqa: B023
            )
            environment.cluster.cut("watch", "secrets", namespace="shop")
        assert environment.informer.counts.relists == {"audit": 1}
        assert environment.informer.counts.lists == 3, (
            "the first of each watch, and one that was not begun anew"
        )


@pytest.mark.parametrize("declared", [EITHER, EITHER[::-1]], ids=["the last", "the first"])
@pytest.mark.parametrize("fault", FAILURES, ids=["refused", "garbled", "broken off"])
async def test_where_one_branch_cannot_be_compared_the_others_are(
    declared: list[Selector], fault: Fault
) -> None:
    async with caching(declared, *OBJECTS) as environment:
        await lose(environment)
        environment.cluster.faults.add(fault, verb="list", resource="secrets", namespace="infra")
        with pytest.raises(Stalled):
            await environment.cache.audit("secrets")
        assert (
            environment.informer.counts.audits,
            environment.informer.counts.failures["audit"],
            environment.informer.counts.drift,
        ) == (1, 1, 5)
        await until(lambda: environment.informer.counts.relists == {"audit": 1})


@pytest.mark.parametrize(
    ("fault", "why"),
    list(zip(FAILURES, ("the server answers 410 ", "", ""), strict=True)),
    ids=["refused", "garbled", "broken off"],
)
async def test_a_periodic_audit_that_fails_is_logged_and_made_again_after_an_interval(
    fault: Fault, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kopf_selectcache")
    async with caching("app=web", *OBJECTS, audit_interval=600.0) as environment:
        await environment.cache.wait_synced()
        environment.cluster.faults.add(
            fault, verb="list", resource="secrets", times=4
        )  # Of what breaks off, each is asked for twice.
        await until(lambda: environment.informer.counts.failures["audit"] >= 2)
        audits = environment.informer.counts.audits
        await until(lambda: environment.informer.counts.audits > audits)
        assert environment.informer.counts.failures["audit"] < environment.time.slept.count(900.0)
        assert environment.informer.state.held() == 5
    assert any(
        message.startswith(f"The cache of secrets could not be compared with the server: {why}")
        and message.endswith(". This is retried.")
        for message in caplog.messages
    )
    assert not [message for message in caplog.messages if "mistake" in message]


async def test_a_mistake_of_ours_in_an_audit_is_logged_and_the_next_one_is_made(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mistaken(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyError("nobody has thought of this")

    monkeypatch.setattr("kopf_selectcache.informer.audit.audited", mistaken)
    async with caching("app=web", *OBJECTS, audit_interval=600.0) as environment:
        await until(lambda: environment.informer.counts.audits)
        assert environment.informer.state.held() == 5
    assert any("failed because of a bug in kopf_selectcache" in message for message in caplog.messages)


class Answers:
    """A transport that gives these pages, one after another, and the last for ever."""

    def __init__(self, *pages: dict[str, object]) -> None:
        self.pages = list(pages)

    async def get(
        self, _: str, __: Mapping[str, str], *, accept: str = "", most: int | None = None
    ) -> bytes:  # As transports are called.
        assert "PartialObjectMetadataList" in accept
        return json.dumps(self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]).encode()


def answering(*pages: dict[str, object]) -> injected.Environment:
    """Return the environment of a server that gives these pages. Its time passes when somebody sleeps."""
    return cast(
        "injected.Environment",
        SimpleNamespace(
            transport=Answers(*pages), settings=SelectCacheSettings(), chance=lambda: 1.0, sleep=Time().sleep
        ),
    )


def page(
    version: str = "100", *, token: str = "", kind: str = "PartialObjectMetadataList", **more: object
) -> dict[str, object]:
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": kind,
        "metadata": {"resourceVersion": version, "continue": token},
        "items": [],
        **more,
    }


ONE = [
    {
        "metadata": {
            "name": "a",
            "namespace": "shop",
            "uid": "1",
            "resourceVersion": "5",
            "labels": {"app": "web"},
        }
    }
]


SECRETS = Resource(builtin("secrets"), "v1")


def held_at_100(*uids: str) -> Substore:
    """Return a branch that holds the secret `a` at version 5 with this uid, or nothing."""
    (writer,) = writers(Union([Stream(Selector("app=web")).keys]))
    writer.begin()
    for uid in uids:
        writer.put(Record("shop", "a", uid, "5", {}, (), b""))
    writer.commit("100")
    return writer.substore


@each_row(
    ("pages", "error"),
    [
        ([page("101")], "a page of version '101' came in a list of version '100'"),
        ([page(token="x"), page("101")], "a page of version '101' came"),
        ([page(token="x", items=ONE)], "the pages of a list never end"),
        (
            [*(page(token=str(number)) for number in range(EMPTY_PAGES + 1)), page()],
            "the pages of a list never end",
        ),
        ([page(kind="Status", code=404, status="Failure")], "404"),
    ],
    ids=[
        "of another version",
        "half of another version",
        "the same token for ever",
        "too many empty pages in a row",
        "a Status as a plain 200",
    ],
)
def test_of_a_list_that_makes_no_sense_no_drift_is_concluded(
    pages: list[dict[str, object]], error: str
) -> None:
    environment = answering(*pages)
    with pytest.raises((Garbled, Refused), match=error):
        asyncio.run(audited(Stream(Selector("app=web")), held_at_100(), SECRETS, environment=environment))


@pytest.mark.parametrize(
    "pages",
    [
        [page(kind="SecretList", apiVersion="v1", items=ONE)],
        [
            *(page(token=str(number)) for number in range(EMPTY_PAGES)),
            page(token="x", items=ONE),
            *(page(token=str(number)) for number in range(EMPTY_PAGES)),
            page(),
        ],
    ],
    ids=["a server that knows no metadata", "as many empty pages in a row as may be"],
)
def test_a_list_of_another_form_is_compared_all_the_same(pages: list[dict[str, object]]) -> None:
    environment = answering(*pages)
    assert asyncio.run(
        audited(Stream(Selector("app=web")), held_at_100(), SECRETS, environment=environment)
    ).missing == (Key("a", namespace="shop"),)


def test_another_object_of_the_same_name_and_version_is_outdated() -> None:
    branch = held_at_100("0")
    environment = answering(page(items=ONE))
    found = asyncio.run(audited(Stream(Selector("app=web")), branch, SECRETS, environment=environment))
    assert (found.missing, found.extra, found.outdated) == ((), (), (Key("a", namespace="shop"),))
