"""Which cache a name means: the same before the cluster has been asked and after it, and never that of
another kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from kopf_selectcache import NotDeclared, NotFound, NotSynced, ReadError, Selector
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.errors import Missing, Rejected
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.metrics import Collector
from tests.faults.environment import Environment, operating, until
from tests.faults.server import Answer, Script, Server, answer, error, held, listed, pod, refused, streamed
from tests.told import told

SERVICE = pod("web", "90") | {"kind": "Service"}


def serve(
    server: Server,
    group: str,
    *versions: str,
    plural: str = "webapps",
    kind: str = "WebApp",
    first: Answer | None = None,
) -> None:
    """Let the server have a resource, empty, in these versions."""
    all_of_them = [{"version": version} for version in versions]
    server.scripts[f"/apis/{group}"] = Script(
        [first or answer({"versions": all_of_them})] + [answer({"versions": all_of_them})] * 20
    )
    served = {
        "name": plural,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": True,
        "shortNames": [plural[:3]],
    }
    for version in versions:
        server.scripts[f"/apis/{group}/{version}"] = Script([answer({"resources": [served]})] * 20)
        server.scripts[f"/apis/{group}/{version}/{plural}"] = Script(
            [
                answer(
                    {
                        "kind": f"{kind}List",
                        "apiVersion": f"{group}/{version}",
                        "metadata": {"resourceVersion": "100"},
                        "items": [],
                    }
                )
            ]
            * 20
        )
    groups = server.scripts.setdefault("/apis", Script([answer({"groups": []})]))
    before = getattr(server, "groups", [])
    server.groups = [*before, {"name": group, "versions": all_of_them}]  # type: ignore[attr-defined]
    groups.lists[:] = [answer({"groups": server.groups})] * 20  # type: ignore[attr-defined]


def core(server: Server, *resources: tuple[str, str]) -> None:
    listed_ = [
        {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": True}
        for plural, kind in resources
    ]
    server.scripts["/api/v1"] = Script([answer({"resources": listed_})] * 20)


def meant(runtime: Runtime, key: KindKey) -> object:
    """Return the declared key of the informer that is found, or the type of the error."""
    try:
        found = runtime.informer(key)
    except ReadError as error:
        return type(error)
    return next(declared for declared, informer in runtime.informers.items() if informer is found)


async def known(environment: Environment, *keys: KindKey) -> None:
    await until(lambda: all(environment.runtime.informers[key].state.is_synced for key in keys))


KNATIVE = "serving.knative.dev/v1/services"


async def test_a_name_of_kubernetes_own_never_means_a_custom_resource() -> None:
    async with Server() as server:
        serve(server, "serving.knative.dev", "v1", plural="services", kind="Service")
        async with operating(server, selectors={KNATIVE: Selector()}) as environment:
            before = [
                meant(environment.runtime, key) for key in ("services", "v1/services", "Service", KNATIVE)
            ]
            await known(environment, KNATIVE)
            assert [
                meant(environment.runtime, key) for key in ("services", "v1/services", "Service", KNATIVE)
            ] == before
            assert before == [NotDeclared, NotDeclared, NotDeclared, KNATIVE]


async def test_each_of_two_kinds_of_one_name_is_read_by_its_own_key() -> None:
    async with Server() as server:
        serve(server, "serving.knative.dev", "v1", plural="services", kind="Service")
        core(server, ("services", "Service"))
        server.scripts["/api/v1/services"] = Script([listed("100", SERVICE, kind="ServiceList")])
        async with operating(server, selectors={KNATIVE: Selector(), "services": Selector()}) as environment:
            await known(environment, KNATIVE, "services")
            for key in ("services", "v1/services", "svc", "Service", ("v1", "services")):
                assert environment.cache.get(key, "web", namespace="shop")["kind"] == "Service"
            with pytest.raises(NotFound):
                environment.cache.get(KNATIVE, "web", namespace="shop")


async def test_a_name_is_not_answered_before_its_kind_is_known() -> None:
    go = asyncio.Event()
    async with Server() as server:
        serve(server, "example.com", "v1", first=held(go, answer({"versions": [{"version": "v1"}]})))
        serve(server, "example.org", "v1", plural="webs", kind="Web")
        async with operating(
            server, selectors={"webapps.example.com": "", "webs.example.org": ""}
        ) as environment:
            await known(environment, "webs.example.org")
            runtime = environment.runtime
            assert meant(runtime, "webs.example.org") == "webs.example.org"
            assert meant(runtime, "example.org/v1/webs") == "webs.example.org", (
                "the other is of another group"
            )
            for key in ("web", "WebApp", "example.com/v1/webapps", "nothing"):
                assert meant(runtime, key) is NotSynced
            with pytest.raises(NotSynced):
                environment.cache.list("web")
            go.set()
            await known(environment, "webapps.example.com")
            assert [
                meant(runtime, key) for key in ("WebApp", "Web", "example.com/v1/webapps", "nothing")
            ] == ["webapps.example.com", "webs.example.org", "webapps.example.com", NotDeclared]


async def test_how_the_name_of_a_kind_that_is_not_served_is_spelt_does_not_decide_the_error() -> None:
    async with Server() as server:
        serve(server, "example.com", "v1")
        async with operating(
            server, selectors={"acme.io/v1/widgets": "", "webapps.example.com": "", "webapps.acme.io": ""}
        ) as environment:
            await known(environment, "webapps.example.com")
            await until(
                lambda: all(
                    environment.runtime.informers[key].state.health is Health.MISSING
                    for key in ("acme.io/v1/widgets", "webapps.acme.io")
                )
            )
            for key in (
                "acme.io/v1/widgets",
                "widgets",
                "widget",
                "Widget",
                "widgets.acme.io",
                "acme.io/widgets",
                ("acme.io", "widgets"),
            ):
                with pytest.raises(Missing):
                    environment.cache.list_cached(key)
            for key in ("acme.io/v2/widgets", "widgets.example.com", "gadgets"):
                with pytest.raises(NotDeclared):
                    environment.cache.list_cached(key)
            assert meant(environment.runtime, "webapps") == "webapps.example.com", (
                "what is served comes first"
            )


async def test_a_name_of_two_caches_is_refused() -> None:
    async with Server() as server:
        serve(server, "example.com", "v1")
        serve(server, "example.org", "v1")
        async with operating(
            server, selectors={"webapps.example.com": "", "webapps.example.org": ""}
        ) as environment:
            await known(environment, "webapps.example.com", "webapps.example.org")
            with pytest.raises(
                ReadError,
                match=(
                    r"web may be any of webapps.example.com, webapps.example.org.\nName the kind as it is"
                    r" declared, such as 'webapps.example.com'"
                ),
            ):
                environment.cache.list("web")


async def test_the_version_of_a_key_is_that_of_the_objects() -> None:
    async with Server() as server:
        serve(server, "autoscaling", "v2", plural="horizontalpodautoscalers", kind="HorizontalPodAutoscaler")
        async with operating(
            server, selectors={"horizontalpodautoscalers": "", "batch/v1/cronjobs": ""}
        ) as environment:
            runtime = environment.runtime
            assert [meant(runtime, key) for key in ("autoscaling/v1/hpa", "autoscaling/v2/hpa")] == [
                NotSynced,
                NotSynced,
            ]
            assert [meant(runtime, key) for key in ("batch/v1/cronjobs", "cronjobs", "cj")] == [
                "batch/v1/cronjobs"
            ] * 3
            await known(environment, "horizontalpodautoscalers")
            assert [meant(runtime, key) for key in ("autoscaling/v1/hpa", "autoscaling/v2/hpa", "hpa")] == [
                NotDeclared,
                "horizontalpodautoscalers",
                "horizontalpodautoscalers",
            ]


# ---- One kind, declared twice.


async def test_two_keys_that_turn_out_to_mean_the_same_are_one_too_many() -> None:
    async with Server() as server:
        serve(server, "example.com", "v1")
        async with operating(
            server, selectors={"webapps.example.com": "app=web", "example.com/v1/webapps": "app=db"}
        ) as environment:
            first, second = environment.runtime.informers.values()
            await until(lambda: first.state.is_synced or second.state.is_synced)
            await until(lambda: Health.REJECTED in (first.state.health, second.state.health))
            kept, refused_ = (first, second) if first.state.is_synced else (second, first)
            with pytest.raises(Rejected) as caught:
                environment.cache.list_cached(refused_.key)
            assert (
                told(caught.value)
                == f"{refused_.key} and {kept.key} are both webapps.example.com (the filter is"
                f" {refused_.state.filter}). Declare it once: remove"
                f" settings.selectcache.selectors[{refused_.key!r}]"
            )
            assert environment.cache.info("WebApp").filter == kept.state.filter
            samples = [
                sample
                for family in Collector(environment.runtime.informers.values).collect()
                for sample in family.samples
            ]
            assert len([sample for sample in samples if sample.name == "kopf_selectcache_objects"]) == 1


async def test_two_versions_of_one_resource_are_warned_of_once_by_their_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new = "webapps.v1beta1.example.com", "example.com/v1/webapps"
    async with Server() as server:
        serve(server, "example.com", "v1", "v1beta1")
        serve(server, "example.org", "v1beta1")  # Another resource, of the same name.
        server.scripts["/apis/example.com/v1/webapps"].watches[:] = [streamed(error(404))] * 2
        async with operating(server, selectors={old: "", new: "", "webapps.example.org": ""}) as environment:
            await until(lambda: len(server.scripts["/apis/example.com/v1/webapps"].watched) > 2)
            await known(environment, old, new, "webapps.example.org")
    warned = [record.args for record in caplog.records if record.funcName == "claim"]
    assert [{args["key"], args["other"]} for args in warned if isinstance(args, Mapping)] == [{old, new}]


async def test_a_kind_that_moves_to_another_version_takes_its_place_along() -> None:
    async with Server() as server:
        serve(server, "example.com", "v1beta1")
        old = server.scripts["/apis/example.com/v1beta1/webapps"]
        old.lists[1:] = [refused(404)] * 9
        old.watches[:] = [refused(410)]
        async with operating(server, selectors={"webapps.example.com": ""}) as environment:
            await until(
                lambda: environment.runtime.informer("webapps.example.com").state.health is Health.MISSING
            )
            assert meant(environment.runtime, "example.com/v1beta1/webapps") == "webapps.example.com"
            serve(server, "example.com", "v1")
            await known(environment, "webapps.example.com")
            assert meant(environment.runtime, "example.com/v1/webapps") == "webapps.example.com"
            assert meant(environment.runtime, "example.com/v1beta1/webapps") is NotDeclared
