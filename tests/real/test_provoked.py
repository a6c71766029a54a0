"""Faults that a real server can be made to do to a cache: readers see nothing half made, and in the end what
the API lists by the filter. The caches run in the test's own process (see inprocess.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until
from tests.real.inprocess import Seen, operating, run, until
from tests.real.proxy import Proxy

StartApi = Callable[..., ApiServer]

ONE, TWO = "configmaps", "secrets"
FILTERS: Mapping[str, Any] = {ONE: "app=web", TWO: ["app=web", "tier=gold"]}
"""A kind that one list and watch keeps, and one that takes two."""

SHORT = {"min-request-timeout": "3"}
"""The server ends each watch after 3 to 6 seconds, and two before that it says to which version all has been
told."""
PACE = 1 / 30
"""On such a server time goes thirty times as fast for caches: then a watch lives for a minute or three, as it
does elsewhere."""


def create(
    api: Cluster, namespace: str, name: str, *, kinds: Sequence[str] = (ONE, TWO), **labels: str
) -> str:
    """Make an object of each kind; give the version since."""
    made: dict[str, Any] = {}
    for kind in kinds:
        made = api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/{kind}",
            body={"metadata": {"name": name, "labels": labels}},
        )
    version: str = made["metadata"]["resourceVersion"]
    return version


def relabel(api: Cluster, namespace: str, name: str, **labels: str | None) -> str:
    changed: dict[str, Any] = {}
    for kind in (ONE, TWO):
        changed = api.request(
            "PATCH", f"/api/v1/namespaces/{namespace}/{kind}/{name}", body={"metadata": {"labels": labels}}
        )
    version: str = changed["metadata"]["resourceVersion"]
    return version


def delete(api: Cluster, namespace: str, name: str) -> None:
    for kind in (ONE, TWO):
        api.request("DELETE", f"/api/v1/namespaces/{namespace}/{kind}/{name}")


def write(api: Cluster, namespace: str, times: int) -> int:
    """Let versions go on by something that no filter holds; give the last."""
    with suppress(ApiError):  # It is there already.
        create(api, namespace, "filler")
    return int([relabel(api, namespace, "filler", times=str(each)) for each in range(times)][-1])


# ---- The store behind the server.


def test_an_etcd_that_is_killed_costs_readers_nothing_but_time(start_api: StartApi) -> None:
    async def main(api: ApiServer) -> None:
        namespace = api.namespace()
        create(api, namespace, "before", app="web")
        create(api, namespace, "mover", app="web")
        async with operating(api, namespace, FILTERS) as operator:
            relabel(api, namespace, "before", seen="yes")
            await asyncio.to_thread(api.etcd.kill)
            # Whoever writes now waits, or is refused, until etcd is there again.
            meanwhile = asyncio.create_task(
                asyncio.to_thread(
                    persistently, lambda: create(api, namespace, "while", app="web", kinds=(ONE,))
                )
            )
            moving = asyncio.create_task(
                asyncio.to_thread(
                    persistently, lambda: relabel(api, namespace, "mover", app=None, tier="gold")
                )
            )
            await until(lambda: not answers(api), "the server misses its etcd")
            assert not meanwhile.done()
            await asyncio.to_thread(api.etcd.start)
            await asyncio.to_thread(api.wait_ready)
            await meanwhile
            await moving
            create(api, namespace, "after", tier="gold")
            delete(api, namespace, "before")
            for kind in FILTERS:
                await operator.in_step(kind)
            assert [
                seen for reader in operator.readers.values() for seen in reader.seen if "!" in "".join(seen)
            ] == []
            assert all("mover" in names for names in operator.readers[TWO].names)

    # Who writes while etcd is away is answered after that time.
    run(main(start_api(flags={"request-timeout": "5s"})))


def answers(api: ApiServer) -> bool:
    try:
        api.request("GET", "/readyz", timeout=5)
    except Exception:  # Refused, or not answered.  # noqa: BLE001
        return False
    return True


def persistently(write: Callable[[], object]) -> None:
    """Write until it has been written."""

    def is_written() -> bool:
        try:
            write()
        except Exception as error:  # Refused, or not answered.  # noqa: BLE001
            return (
                isinstance(error, ApiError) and error.status == 409
            )  # The server did it, and could not say so.
        return True

    wait_until(is_written, "it is written", deadline=120)


# ---- A restore: versions go back.


@pytest.mark.parametrize(
    ("flags", "audit_interval"),
    [
        pytest.param(SHORT, 0, id="by the silence of watches"),
        pytest.param({}, 60.0, id="by the audit, before the first bookmark has come"),
    ],
)
def test_after_a_restore_caches_start_anew_loudly_and_readers_see_no_mix_of_states(
    start_api: StartApi, caplog: pytest.LogCaptureFixture, flags: Mapping[str, str], audit_interval: float
) -> None:
    async def main(api: ApiServer) -> None:
        namespace = api.namespace()
        populate(api, namespace)
        backup = api.back_up()
        async with operating(api, namespace, FILTERS, pace=PACE, audit_interval=audit_interval) as operator:
            backed_up = {kind: reader.seen[-1] for kind, reader in operator.readers.items()}
            write(api, namespace, 100)
            live_on(api, namespace)
            for kind in FILTERS:
                await operator.in_step(kind)
            told = int(create(api, namespace, "unseen"))
            if not audit_interval:
                await until(
                    lambda: all(
                        int(informer.state.version) >= told
                        for informer in operator.runtime.informers.values()
                    ),
                    "bookmarks come",
                )
            before = {kind: reader.seen[-1] for kind, reader in operator.readers.items()}
            await asyncio.to_thread(api.restore, backup)
            live_otherwise(api, namespace)
            assert write(api, namespace, 10) < told
            for kind, reader in operator.readers.items():
                await operator.in_step(kind)
                seen = reader.seen[reader.seen.index(before[kind]) :]
                old, new = {*before[kind]}, {*backed_up[kind], *seen[-1]}
                stays = names_of(before[kind]) & names_of(backed_up[kind]) & names_of(seen[-1])
                assert [each for each in seen if not stays <= names_of(each)] == [], "absent in between"
                assert [each for each in seen if not old | new >= {*each}] == []
                if kind == ONE:
                    environments = [old >= {*each} for each in seen]
                    assert environments == sorted(environments, reverse=True)
                    assert [each for each in seen if not (old >= {*each} or new >= {*each})] == [], (
                        "half a environment"
                    )
            # No guard of versions is left that keeps out what comes next.
            relabel(api, namespace, "stays", seen="yes")
            delete(api, namespace, "moves")
            for kind in FILTERS:
                await operator.in_step(kind)

    run(main(start_api(flags=flags)))
    loud = [message for message in caplog.messages if "went back to an older state" in message]
    assert {message.split()[3] for message in loud} == {ONE, TWO}


def test_a_restore_that_nobody_could_notice_is_found_by_the_audit(
    start_api: StartApi, caplog: pytest.LogCaptureFixture
) -> None:
    """The server has passed the version that was lost before it can be asked: to the watch nothing seems to
    be wrong."""

    async def main(api: ApiServer) -> None:
        namespace = api.namespace()
        populate(api, namespace)
        backup = api.back_up()
        with Proxy(api) as proxy:
            async with operating(api, namespace, FILTERS, url=proxy.url) as operator:
                live_on(api, namespace)
                for kind in FILTERS:
                    await operator.in_step(kind)
                lost = max(int(informer.state.version) for informer in operator.runtime.informers.values())
                proxy.hold(lambda _: True)
                await asyncio.to_thread(api.restore, backup)
                live_otherwise(api, namespace)
                assert write(api, namespace, 100) > lost
                proxy.release()
                create(api, namespace, "next", app="web")
                for kind in FILTERS:
                    await until(lambda kind=kind: "next" in operator.holds(kind), "it follows")  # type: ignore[misc]
                    assert "new" in operator.holds(kind)
                    found = await operator.cache.audit(kind)
                    assert {key.name for key in found.extra} >= {"new"}
                    await operator.in_step(kind)
                    assert await operator.cache.audit(kind)

    run(main(start_api()))
    assert len([message for message in caplog.messages if "has drifted from the server" in message]) == 3, (
        "once for each list and watch"
    )


def populate(api: ApiServer, namespace: str) -> None:
    for name in ("stays", "changes", "is-deleted", "is-replaced"):
        create(api, namespace, name, app="web", tier="gold")
    create(api, namespace, "moves", app="web")
    create(api, namespace, "comes-back", app="web")


def live_on(api: ApiServer, namespace: str) -> None:
    """The objects that the backup does not have."""
    create(api, namespace, "new", app="web", tier="gold")
    relabel(api, namespace, "changes", lost="yes")
    relabel(api, namespace, "moves", app=None, tier="gold")
    relabel(api, namespace, "comes-back", app=None)
    delete(api, namespace, "is-deleted")
    delete(api, namespace, "is-replaced")
    create(api, namespace, "is-replaced", app="web", tier="gold")


def live_otherwise(api: ApiServer, namespace: str) -> None:
    create(api, namespace, "other", app="web", tier="gold")
    relabel(api, namespace, "changes", instead="yes")


def names_of(seen: Seen) -> set[str]:
    return {each.partition("@")[0] for each in seen}


# ---- A kind that goes and comes back.


@pytest.mark.parametrize("again", ["v1", "v2"])
async def test_a_definition_that_is_deleted_makes_its_kind_missing_until_it_is_there_again(
    real_api: ApiServer, caplog: pytest.LogCaptureFixture, again: str
) -> None:
    caplog.set_level(logging.INFO, "kopf_selectcache")
    group = f"{real_api.namespace(prefix='g')}.example.com"
    kind, definition = (
        f"widgets.{group}",
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}",
    )

    def make(namespace: str, version: str, *names: str) -> None:
        real_api.create_crd(group, version, "Widget", "widgets")
        for name in names:
            body = {
                "apiVersion": f"{group}/{version}",
                "kind": "Widget",
                "metadata": {"name": name, "labels": {"app": "web"}},
            }
            persistently(
                lambda body=body: real_api.request(  # type: ignore[misc]
                    "POST", f"/apis/{group}/{version}/namespaces/{namespace}/widgets", body=body
                )
            )

    namespace = real_api.namespace()
    await asyncio.to_thread(make, namespace, "v1", "same", "old")
    async with operating(real_api, namespace, {kind: "app=web"}, pace=PACE) as operator:
        reader = operator.readers[kind]
        await until(lambda: reader.names[-1] == {"same", "old"}, "it is synced")
        before = reader.seen[-1]
        real_api.request("DELETE", definition)
        await until(lambda: reader.seen[-1] == ("!Missing",), "the kind is missing")
        await asyncio.to_thread(make, namespace, again, "same", "new")
        await until(lambda: reader.names[-1] == {"same", "new"}, "it is kept again")
        assert {each["apiVersion"] for each in operator.cache.list_cached(kind)} == {f"{group}/{again}"}
        assert not {*before} & {*reader.seen[-1]}, "the objects are others"
        # The server deletes what there was before the kind is gone, and once it is back, objects come one
        # by one.
        gone = reader.seen.index(("!Missing",))
        assert all({*seen} <= {*before} for seen in reader.seen[reader.seen.index(before) : gone])
        assert [seen for seen in reader.seen[gone:] if {*before} & {*seen}] == [], "what was lost came back"
    assert len(caplog.messages) <= 6, caplog.messages
