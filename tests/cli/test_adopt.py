"""The command `adopt`: which labels it would add, and which it adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.cli.conftest import Command, parsed, pod
from tests.cli.test_outside import HANDLERS, LOOKED, PODS, config, owned, widget

OWNS = "widgets.example.com/mine in default owns it"
NOTHING = "Your resources own nothing outside the filters.\n"
LOST = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "lost-1", "namespace": "default"}}


def lost(cluster: EmbeddedCluster, *names: str, **labels: str) -> None:
    """Create pods that a widget owns, with these labels."""
    mine, names = widget(cluster), names or ("lost-1",)
    for name in names:
        made = pod(name, "")
        cluster.create(owned({**made, "metadata": {**made["metadata"], "labels": labels}}, mine))


def labels_of(cluster: EmbeddedCluster, name: str = "lost-1") -> dict[str, str]:
    found: dict[str, str] = cluster.get({**LOST, "metadata": {"name": name, "namespace": "default"}})[
        "metadata"
    ].get("labels", {})
    return found


def test_without_apply_the_server_checks_the_patch_and_stores_nothing(
    cluster: EmbeddedCluster, command: Command
) -> None:
    lost(cluster, tier="gold")
    said = command("adopt", PODS, handlers=HANDLERS)
    assert (said.code, said.errors) == (0, "")
    assert said.output == (
        f"pods/lost-1 in default would get app=web: {OWNS}.\n"
        f"Would label 1 of 1 object. Nothing was changed. To do it, add --apply.\n{LOOKED}"
    )
    assert labels_of(cluster) == {"tier": "gold"}
    assert [each.query for each in cluster.requests.where(verb="patch")] == [{"dryRun": "All"}]


def test_apply_adds_the_label_of_the_filter_and_no_other(cluster: EmbeddedCluster, command: Command) -> None:
    lost(cluster, "lost-1", "lost-2", tier="gold")
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    assert said.output.splitlines()[:3] == [
        f"pods/lost-1 in default got app=web: {OWNS}.",
        f"pods/lost-2 in default got app=web: {OWNS}.",
        "Labelled 2 of 2 objects.",
    ]
    assert [labels_of(cluster, name) for name in ("lost-1", "lost-2")] == [{"app": "web", "tier": "gold"}] * 2
    assert command("adopt", PODS, handlers=HANDLERS) == (0, f"{NOTHING}{LOOKED}", "")


def test_an_object_that_is_referred_to_and_not_owned_stays_as_it_is(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.create(config("named"))
    widget(cluster, configMapName="named")
    declared = "select['v1/configmaps'] = 'app=web'"
    assert command("outside", declared, handlers=HANDLERS).code == 1
    said = command("adopt", declared, "--apply", handlers=HANDLERS)
    assert (said.code, said.output) == (0, f"{NOTHING}Searched: configmaps, widgets.example.com.\n")


@pytest.mark.parametrize(
    ("declared", "labels", "why"),
    [
        ("'app=web'", {"app": "db"}, ["app=web: it has app=db"]),
        ("'app in (web,api)'", {}, ["app in (api,web): it has no label app"]),
        ("'app'", {}, ["app: it has no label app"]),
        ("'!old,app=web'", {"old": "1"}, ["app=web,!old: it needs !old, but it has old=1"]),
        (
            "Selector('app=web', fields='spec.nodeName=n1')",
            {},
            ["labels='app=web', fields='spec.nodeName=n1': it fails spec.nodeName=n1"],
        ),
        ("Selector('app=web', names=['x'])", {}, ["labels='app=web', names=['x']: it fails name=x"]),
        (
            "['app', Selector('a=b', namespaces=['other'])]",
            {},
            ["app: it has no label app", "labels='a=b', namespaces=['other']: it fails namespace=other"],
        ),
    ],
)
def test_requirements_that_additional_labels_cannot_meet_are_named(
    cluster: EmbeddedCluster, command: Command, declared: str, labels: dict[str, str], why: list[str]
) -> None:
    lost(cluster, **labels)
    said = command("adopt", f"select['v1/pods'] = {declared}", "--apply", handlers=HANDLERS)
    first, *reasons = said.output.partition("\nLabelled 0 of 1 object.")[0].splitlines()
    assert first == "pods/lost-1 in default is left as it is, because it needs more than additional labels:"
    assert reasons == [f"  {each}" for each in why]
    assert (said.code, labels_of(cluster)) == (1, labels)
    assert not cluster.requests.where(verb="patch")


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_object_that_another_controller_owns_stays_as_it_is(
    cluster: EmbeddedCluster, command: Command, *, is_ours: bool
) -> None:
    made = owned(pod("lost-1", ""), widget(cluster))
    (reference,) = made["metadata"]["ownerReferences"]
    (node,) = cluster.create({"kind": "Node", "metadata": {"name": "n1"}})
    other = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"]}
    reference["controller"], other["controller"] = is_ours, not is_ours
    made["metadata"] |= {"labels": {}, "ownerReferences": [reference, other]}
    cluster.create(made)
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    left = "pods/lost-1 in default is left as it is, because Node n1 controls it."
    got = f"pods/lost-1 in default got app=web: {OWNS}."
    assert (said.code, said.output.splitlines()[0]) == ((0, got) if is_ours else (1, left))
    assert labels_of(cluster) == ({"app": "web"} if is_ours else {})


def test_an_alternative_whose_fields_fit_is_taken(cluster: EmbeddedCluster, command: Command) -> None:
    mine = widget(cluster)
    made = owned(pod("lost-1", "db"), mine)
    cluster.create({**made, "spec": {**made["spec"], "nodeName": "n1"}})
    alternatives = (
        "[Selector('tier=gold', fields='spec.nodeName=n1'), Selector('a=b', fields='spec.nodeName=n2')]"
    )
    said = command("adopt", f"select['v1/pods'] = {alternatives}", "--apply", handlers=HANDLERS)
    assert said.code == 0
    assert labels_of(cluster) == {"app": "db", "tier": "gold"}


def test_a_choice_is_left_to_the_user(cluster: EmbeddedCluster, command: Command) -> None:
    lost(cluster)
    said = command("adopt", "select['v1/pods'] = ['app=web', 'a=b,tier=gold']", "--apply", handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[0]) == (
        1,
        "pods/lost-1 in default is left as it is, because you have a choice: app=web; or a=b,tier=gold.",
    )
    assert labels_of(cluster) == {}


def test_alternatives_that_ask_for_the_same_label_leave_no_choice(
    cluster: EmbeddedCluster, command: Command
) -> None:
    lost(cluster)
    said = command("adopt", "select['v1/pods'] = ['app=web,!old', 'app=web,a!=b']", handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[0]) == (
        0,
        f"pods/lost-1 in default would get app=web: {OWNS}.",
    )


def test_json_has_the_labels_and_the_result(cluster: EmbeddedCluster, command: Command) -> None:
    lost(cluster)
    data = parsed(command("adopt", PODS, "-o", "json", handlers=HANDLERS))
    assert data == {
        "applied": False,
        "count": 1,
        "objects": [
            {
                "kind": "pods",
                "namespace": "default",
                "name": "lost-1",
                "reasons": [OWNS],
                "fails": ["app=web"],
                "labels": {"app": "web"},
                "result": "adoptable",
                "text": f"pods/lost-1 in default would get app=web: {OWNS}.",
            }
        ],
        "searched": ["pods", "widgets.example.com"],
        "searchedMetadata": [],
        "notes": [],
    }
    assert parsed(command("adopt", PODS, "--apply", "-o", "json", handlers=HANDLERS))["applied"]


def test_a_refusal_of_the_server_is_shown(cluster: EmbeddedCluster, command: Command) -> None:
    lost(cluster, "lost-1", "lost-2")
    cluster.faults.add(Refuse(403, message="you may not patch pods"), verb="patch", name="lost-1")
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    assert said.code == 1
    assert said.output.splitlines()[:3] == [
        "pods/lost-1 in default can't get app=web: you may not patch pods.",
        f"pods/lost-2 in default got app=web: {OWNS}.",
        "Labelled 1 of 2 objects.",
    ]


def test_adopted_objects_are_shown_although_the_server_fails_later(
    cluster: EmbeddedCluster, command: Command
) -> None:
    lost(cluster, "a", "b")
    cluster.faults.add(Refuse(503, message="shutting down"), verb="get", name="b")
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[:2]) == (
        1,
        [f"pods/a in default got app=web: {OWNS}.", "Labelled 1 of 1 object."],
    )
    assert said.errors.startswith("error: the server answers 503")
    cluster.faults.add(Refuse(503, message="shutting down"), verb="get", name="a")
    of_a = {**LOST, "metadata": {"name": "a", "namespace": "default"}}
    cluster.patch(of_a, {"metadata": {"labels": {"app": None}}})
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    assert (said.code, said.output) == (1, "")


# ---- What others do between the list and the patch.


def meanwhile(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
    """Let somebody act each time before a request for a single object or a patch is sent, in this order."""
    left = [*acts]
    for verb in ("get", "send"):
        monkeypatch.setattr(KopfTransport, verb, _acting(getattr(KopfTransport, verb), left))


def _acting(send: Any, left: list[Callable[[], object]]) -> Any:
    async def sent(self: Any, *given: Any, **options: Any) -> bytes:
        if any(str(each).endswith("/lost-1") for each in given) and left:
            left.pop(0)()
        answer: bytes = await send(self, *given, **options)
        return answer

    return sent


def test_an_object_that_changes_meanwhile_is_looked_at_again(
    cluster: EmbeddedCluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost(cluster)

    def label(**labels: str) -> Callable[[], object]:
        return lambda: cluster.patch(LOST, {"metadata": {"labels": labels}})

    meanwhile(monkeypatch, label(), label(app="other"))
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[1]) == (1, "  app=web: it has app=other")
    assert labels_of(cluster) == {"app": "other"}
    cluster.patch(LOST, {"metadata": {"labels": {"app": None}}})
    meanwhile(monkeypatch, label(app="web"))
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[0]) == (
        0,
        "pods/lost-1 in default: the filter selects it now.",
    )


def test_an_object_that_keeps_changing_is_left_after_three_tries(
    cluster: EmbeddedCluster, command: Command
) -> None:
    lost(cluster)
    cluster.faults.add(Refuse(409), verb="patch")
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[0]) == (
        1,
        "pods/lost-1 in default was changed by others 3 times meanwhile. Try again.",
    )
    assert len(cluster.requests.where(verb="patch")) == 3


@pytest.mark.parametrize("is_replaced", [True, False])
def test_an_object_that_was_deleted_meanwhile_is_not_adopted(
    cluster: EmbeddedCluster, command: Command, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    lost(cluster)

    def delete() -> None:
        cluster.delete(LOST, grace_period=0)
        if is_replaced:
            cluster.create(pod("lost-1", "db"))

    meanwhile(monkeypatch, delete)
    said = command("adopt", PODS, "--apply", handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[0]) == (0, "pods/lost-1 in default was deleted meanwhile.")
    assert not cluster.requests.where(verb="patch")


def test_a_label_that_the_server_does_not_keep_is_a_failure(
    cluster: EmbeddedCluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a webhook took it off."""
    lost(cluster)
    send = KopfTransport.send

    async def sent(self: Any, *given: Any, **options: Any) -> bytes:
        return (await send(self, *given, **options)).replace(b'"web"', b'"none"')

    monkeypatch.setattr(KopfTransport, "send", sent)
    said = command("adopt", PODS, handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[0]) == (
        1,
        "pods/lost-1 in default does not keep app=web: the server changes it back.",
    )


def test_kinds_that_could_not_be_listed_are_named(cluster: EmbeddedCluster, command: Command) -> None:
    widget(cluster)
    cluster.faults.add(Refuse(403), verb="list", resource="pods")
    said = command("adopt", PODS, handlers=HANDLERS)
    assert (said.code, said.output.splitlines()[0]) == (
        2,
        "Your resources own nothing outside the filters in the kinds that could be listed.",
    )
    assert "note: pods can't be listed" in said.errors
