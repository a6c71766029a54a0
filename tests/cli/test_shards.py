"""The command `shards`: the replicas of a sharded operator, and who handles which namespaces; and what other
commands say of sharding."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml

from kopf_selectcache.__main__ import main
from kopf_selectcache.core.assignment.records import (
    Assignment,
    Lease,
    LeaseRead,
    Share,
    assignment_body,
    fresh,
    lease_body,
)
from kopf_selectcache.core.assignment.rendezvous import range_of_key
from kopf_selectcache.sharding.shards import Static
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.cli.conftest import DEFINITION, Command, Outcome, parsed, pod
from tests.cli.test_output import require_documented

GROUP, OPERATORS = "webapps", "operators"
TEAMS = ("shop", "office", "lab")
SHARDED = """
settings.selectcache.sharding = selectcache.Sharding(name='webapps', namespace='operators')
select['v1/pods'] = 'app=web'
"""
RECONCILING = "\n@selectcache.reconcile('v1/pods')\nasync def count(**_): ...\n"
CONFIGMAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "webapps-shards", "namespace": OPERATORS},
}
WEB, AS_WEB = "system:serviceaccount:operators:web", ("--account", "operators/web")


def lease(name: str, *, age: float = 3.0, holder: str | None = None, **content: Any) -> dict[str, Any]:
    """Return the Lease of a replica that renewed it some seconds ago."""
    read = LeaseRead(name, lease=Lease(f"{name}/aa-1" if holder is None else holder, **content))
    renewed = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    return lease_body(GROUP, OPERATORS, read, renewed=renewed, seconds=40)


def assignment(owners: Mapping[int, str], *, by: str = "namespace", **shares: Any) -> dict[str, Any]:
    """Return the ConfigMap: these replicas own these ranges, and `web-1` all others."""
    found = tuple(
        Share(owner and f"{owner}/aa-1", epoch=2, **shares)
        for owner in (owners.get(range_, "web-1") for range_ in range(64))
    )
    made = Assignment(**msgspec.structs.asdict(fresh(by, "mixed-fnv1a-64", "n", 64, "a")))
    made = msgspec.structs.replace(made, shares=found)
    return assignment_body(GROUP, OPERATORS, made, version="", uid="")


def range_of_namespace(name: str) -> int:
    return range_of_key(name, "", "namespace")


@pytest.fixture
def teams(cluster: EmbeddedCluster) -> EmbeddedCluster:
    for name in (OPERATORS, *TEAMS):
        cluster.namespace(name)
    return cluster


def shards(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """Run the command without an operator."""
    capsys.readouterr()
    return Outcome(main(["shards", *arguments]), *capsys.readouterr())


HALVES = dict.fromkeys(range(32), "web-2")


def test_each_replica_is_shown_with_its_ranges_and_namespaces(
    teams: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    teams.create(lease("web-1"), lease("web-2", is_leaving=True), assignment(HALVES))
    said = shards(capsys, "--name", GROUP, "-n", OPERATORS)
    head, first, second, _, summary = said.output.splitlines()
    assert head.split() == ["REPLICA", "STATE", "SINCE", "RENEWED", "NAMESPACES", "RANGES"]
    assert first.split()[:2] == ["web-1", "alive"]
    assert first.endswith("  32: 32-63")
    assert second.split()[:2] == ["web-2", "leaving"]
    assert summary == (
        "webapps in operators: 2 replicas, 64 of 64 ranges by namespace have an owner that is alive, 64 moves"
        " so far."
    )
    assert (said.code, said.errors) == (0, "")
    answer = parsed(shards(capsys, "-o", "json"))
    require_documented("shards", answer)
    data = answer["operators"][0]
    for name in TEAMS:
        owner = "web-2" if range_of_namespace(name) < 32 else "web-1"
        (found,) = (each for each in data["replicas"] if each["name"] == owner)
        assert name in found["namespaces"]
        assert data["ranges"][range_of_namespace(name)]["owner"] == owner
    assert data["moves"] == 64


def test_a_late_replica_handles_nothing_and_its_namespaces_are_named(
    teams: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    its = range_of_namespace("office")
    teams.create(lease("web-1"), lease("web-2", age=31), assignment({its: "web-2"}))
    said = shards(capsys)
    assert said.code == 1
    assert f"\n! No replica handles 1 range: {its}. Namespaces without a replica: office.\n" in said.output
    assert "1 replica, 63 of 64 ranges by namespace have an owner that is alive" in said.output


@pytest.mark.parametrize(
    ("holder", "spec", "state"),
    [
        ("", {}, None),
        ("web-2/bb-1", {}, "alive"),
        ("web-2/aa-1", {"holderIdentity": "somebody"}, "unreadable"),
    ],
    ids=["left", "began again", "edited"],
)
def test_ranges_of_an_identity_that_has_no_lease_are_unowned(
    teams: EmbeddedCluster,
    capsys: pytest.CaptureFixture[str],
    holder: str,
    spec: dict[str, str],
    state: str | None,
) -> None:
    second = lease("web-2", holder=holder)
    second["spec"] |= spec
    teams.create(lease("web-1"), second, assignment(HALVES))
    said = shards(capsys, "-o", "json")
    data = parsed(said)["operators"][0]
    assert (said.code, data["unowned"]["ranges"]) == (1, [*range(32)])
    found = [(each["name"], each["state"], len(each["ranges"])) for each in data["replicas"]]
    own = [("web-2", state, 0)] if state is not None else []
    assert sorted(found) == sorted([("web-1", "alive", 32), ("web-2", "left", 32), *own])


def test_ranges_that_move_say_where(teams: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    owners = {7: "", **dict.fromkeys(range(10, 64), "web-2")}
    teams.create(lease("web-1"), lease("web-2"), assignment(owners, warm="web-2/aa-1"))
    said = shards(capsys).output
    assert "\nRanges 0-6, 8-9 move from web-1 to web-2.\nRange 7 moves from nobody to web-2.\n" in said


@pytest.mark.parametrize("warm", ["", "web-2/aa-1"])
def test_a_replica_that_is_alive_and_gets_no_range_is_named(
    teams: EmbeddedCluster, capsys: pytest.CaptureFixture[str], warm: str
) -> None:
    teams.create(lease("web-1"), lease("web-2"), assignment({}, warm=warm))
    said = shards(capsys)
    assert said.code == 0
    assert ("\n* web-2 owns no range: it has just started, or it has another by= than " in said.output) is (
        not warm
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (None, "it is absent"),
        ({"data": {"seal": "other"}}, "somebody edited it: its seal doesn't fit"),
        ({"data": {"assignment": None}, "metadata": {"labels": None}}, "it has no assignment"),
    ],
)
def test_an_assignment_that_cannot_be_used_says_why(
    teams: EmbeddedCluster,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any] | None,
    why: str,
) -> None:
    teams.create(lease("web-1"))
    if change is not None:
        teams.create(assignment({}))
        teams.patch(CONFIGMAP, change)
    said = shards(capsys)
    assert said.code == 1
    assert (
        f"! No replica handles anything: the ConfigMap webapps-shards can't be used ({why})." in said.output
    )
    assert "1 replica, 0 of 64 ranges have an owner that is alive." in said.output
    assert parsed(shards(capsys, "-o", "json"))["operators"][0]["assignment"] == why


def test_without_leases_and_without_a_name_there_is_no_sharded_operator(
    teams: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    said = shards(capsys)
    assert (said.code, said.output) == (1, "")
    assert said.errors.startswith("error: there is no sharded operator\nhint: ")
    said = shards(capsys, "--name", GROUP, "-n", OPERATORS)
    assert said.code == 1
    assert "! No replica of webapps runs in operators." in said.output
    teams.create(assignment({}))
    assert "\n! No replica handles 64 ranges: 0-63." in shards(capsys).output


def test_missing_permissions_are_reported(teams: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    teams.create(lease("web-1"), assignment({}))
    teams.faults.add(Refuse(403, message="no"), verb="list", resource="namespaces")
    said = shards(capsys)
    assert (said.code, said.errors) == (0, "note: The namespaces in the ranges are unknown: no.\n")
    assert said.output.splitlines()[1].split()[-3] == "?"
    teams.faults.add(Refuse(403, message="no leases"), verb="list", resource="leases")
    said = shards(capsys)
    assert (said.code, said.output) == (2, "")
    assert said.errors.startswith("error: permission is missing: no leases\nhint: It needs to list leases")


def test_a_clock_that_is_ahead_is_noted(teams: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    teams.create(lease("web-1", age=-3600), assignment({}))
    assert "note: The clock of web-1 is 3600 s ahead of this machine's" in shards(capsys).errors


# ---- Of an operator.


def test_the_settings_say_which_leases_to_show(teams: EmbeddedCluster, command: Command) -> None:
    teams.create(lease("web-1"), assignment({}))
    said = command("shards", SHARDED, handlers=RECONCILING)
    assert (said.code, said.errors) == (0, "")
    assert "webapps in operators: 1 replica, 64 of 64 ranges" in said.output
    other = SHARDED.replace("'webapps'", "'others'")
    assert "! No replica of others runs in operators." in command("shards", other).output


@pytest.mark.usefixtures("nowhere", "registry")
def test_ranges_that_never_move_need_no_cluster(command: Command) -> None:
    static = SHARDED.replace("name='webapps', namespace='operators'", "static=(0, 2)")
    said = command("shards", static, "-o", "json")
    (found,) = parsed(said)["operators"]
    assert (said.code, [len(each["ranges"]) for each in found["replicas"]]) == (0, [32, 32])


@pytest.mark.usefixtures("nowhere", "registry")
def test_an_operator_of_one_replica_is_an_error(command: Command) -> None:
    said = command("shards", "select['v1/pods'] = 'app=web'")
    assert (said.code, said.output) == (2, "")
    assert said.errors.startswith("error: the operator isn't sharded\nhint: ")


@pytest.mark.usefixtures("nowhere", "registry")
def test_a_wrong_option_is_refused_with_the_line_of_the_operator(command: Command) -> None:
    """The line above it is of the code that Python has generated for `Sharding`."""
    said = command("check", "settings.selectcache.sharding = selectcache.Sharding(lease=2)")
    assert re.match(r"error: web\.py:\d+: Sharding\(lease=2\): not a number of seconds", said.errors)


@pytest.mark.parametrize("arguments", [(), ("--account", "operators/web")])
def test_rbac_has_a_role_in_the_namespace_of_the_replicas(
    teams: EmbeddedCluster, command: Command, arguments: tuple[str, ...]
) -> None:
    declared = SHARDED if not arguments else SHARDED.replace(", namespace='operators'", "")
    said = command("rbac", declared, "--standalone", *arguments, handlers=RECONCILING)
    roles = [each for each in yaml.safe_load_all(said.output) if each["kind"] == "Role"]
    assert [role["metadata"]["namespace"] for role in roles] == [OPERATORS]
    verbs = ["get", "list", "watch", "create", "update"]
    assert roles[0]["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": [*verbs, "delete"],
        },
    ]
    assert teams.requests.where(verb="create") == []


def test_missing_permissions_are_found(teams: EmbeddedCluster, command: Command) -> None:
    teams.user(WEB, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
    said = command("check", SHARDED, "--standalone", *AS_WEB, handlers=RECONCILING)
    assert said.code == 1
    assert "for the Leases and the ConfigMap of the replicas. Add to a Role in operators" in said.output
    said = command("rbac", SHARDED, "--standalone", "--check", *AS_WEB, handlers=RECONCILING)
    assert said.code == 1
    assert "create, update, delete leases.coordination.k8s.io in operators, for sharding\n" in said.output


@pytest.mark.usefixtures("teams")
def test_check_shows_which_caches_are_divided(command: Command) -> None:
    said = command("check", SHARDED, "--standalone", handlers=RECONCILING)
    assert (
        "\nSharded by namespace as webapps in operators: each replica runs for its own namespaces: count."
        " In the Deployment, set the variable POD_NAME from fieldRef: metadata.name.\n"
    ) in said.output
    assert "\n    divided: reconciler 'count' handles them\n" in said.output
    assert said.code == 0
    said = command("check", SHARDED, "--standalone")
    assert "\n    whole: they are only read, and reads may be of any namespace\n" in said.output
    unknown = SHARDED.replace(", namespace='operators'", "")
    said = command("check", unknown, "--standalone", handlers=RECONCILING)
    assert "* The namespace of the replicas, and so of their Leases, is unknown." in said.output


@pytest.mark.usefixtures("teams")
def test_check_finds_that_the_namespace_of_replicas_is_absent(command: Command) -> None:
    hint = "* The namespace of the replicas, operatros, does not exist. Create it, or correct"
    said = command(
        "check", SHARDED.replace("'operators'", "'operatros'"), "--standalone", handlers=RECONCILING
    )
    assert (said.code, hint in said.output) == (0, True)
    assert hint[:30] not in command("check", SHARDED, "--standalone", handlers=RECONCILING).output
    static = SHARDED.replace("name='webapps', namespace='operators'", "static=(0, 3), namespace='operatros'")
    assert hint[:30] not in command("check", static, "--standalone", handlers=RECONCILING).output


def test_a_custom_kind_without_namespaces_is_not_divided(teams: EmbeddedCluster, command: Command) -> None:
    definition: dict[str, Any] = deepcopy(DEFINITION)
    definition["spec"]["scope"] = "Cluster"
    teams.create(definition)
    declared = SHARDED.replace("v1/pods'] = 'app=web'", "example.com/v1/widgets'] = selectcache.EVERYTHING")
    handlers = RECONCILING.replace("v1/pods", "example.com/v1/widgets")
    said = command("check", declared, "--standalone", handlers=handlers)
    assert "\n    whole: they are cluster-scoped\n" in said.output


@pytest.mark.usefixtures("teams")
def test_caches_of_replicas_that_divide_objects_cannot_be_divided(command: Command) -> None:
    by_object = SHARDED.replace("Sharding(", "Sharding(by='object', ")
    divided = by_object.replace("'app=web'", "selectcache.Cached('app=web', sharded=True)")
    said = command("check", divided, "--standalone", handlers=RECONCILING)
    assert (said.code, "Or divide the work by namespace: Sharding(by='namespace')" in said.errors) == (
        1,
        True,
    )
    said = command("check", by_object, "--standalone", handlers=RECONCILING)
    assert said.code == 0
    assert "\n    whole: replicas divide the work by object, and caches only by namespace\n" in said.output


@pytest.mark.usefixtures("teams")
def test_objects_that_would_be_handled_twice_are_a_problem(command: Command) -> None:
    said = command("check", SHARDED, handlers=RECONCILING)
    assert (said.code, "peering must be off" in said.errors) == (1, True)


def test_objects_of_a_namespace_can_have_several_replicas(
    teams: EmbeddedCluster, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    by_object = SHARDED.replace("Sharding(", "Sharding(by='object', ")
    number = range_of_key("shop", "a", "object")
    teams.create(lease("web-1"), lease("web-2"), assignment({number: "web-2"}, by="object"))
    teams.create(pod("a", "web"), pod("b", "web"))
    said = command("why", by_object, "pods/shop/a", "-A", "--standalone", handlers=RECONCILING)
    assert f"\nReplica web-2 handles it: its namespace and name are in range {number}.\n" in said.output
    said = command("why", by_object, "pods/shop/b", "-A", "--standalone", handlers=RECONCILING)
    assert "\nReplica web-1 handles it: " in said.output
    said = shards(capsys)
    assert "64 of 64 ranges by object" in said.output
    assert said.output.splitlines()[1].split()[-3] == "?", "each namespace may have objects in all ranges"


@pytest.mark.parametrize(
    ("namespace", "text"),
    [("shop", "Replica web-2 handles it"), ("office", "No replica handles it")],
)
def test_why_names_the_replica_of_an_object(
    teams: EmbeddedCluster, command: Command, namespace: str, text: str
) -> None:
    owners = {range_of_namespace("shop"): "web-2", range_of_namespace("office"): ""}
    teams.create(lease("web-1"), lease("web-2"), assignment(owners))
    teams.create(pod("a", "web", namespace=namespace))
    said = command("why", SHARDED, f"pods/{namespace}/a", "-A", "--standalone", handlers=RECONCILING)
    number = range_of_namespace(namespace)
    assert f"\n{text}: the namespace {namespace} is in range {number}.\n" in said.output
    assert said.code == 0


def test_why_names_the_replica_of_an_object_without_a_cache(teams: EmbeddedCluster, command: Command) -> None:
    teams.create(lease("web-1"), assignment({}))
    said = command("why", SHARDED, "configmaps/shop/a", "-A", "--standalone")
    number = range_of_namespace("shop")
    assert said.output == (
        "The operator declares no cache of configmaps.\n"
        f"Replica web-1 handles it: the namespace shop is in range {number}.\n"
    )
    assert said.code == 1
    said = command("why", SHARDED, "configmaps/shop/a", "-A", "--standalone", "-o", "json")
    assert parsed(said)["caches"] == []
    assert parsed(said)["replica"] == "web-1"


@pytest.mark.parametrize(
    ("by", "named"), [("namespace", "the namespace shop is"), ("object", "its namespace and name are")]
)
def test_why_names_the_number_of_a_static_replica(
    teams: EmbeddedCluster, command: Command, by: str, named: str
) -> None:
    number = range_of_key("shop", "a", by)
    owner = Static(0, 3).owner_of(number)
    static = SHARDED.replace("name='webapps', namespace='operators'", f"by='{by}', static=(0, 3)")
    teams.create(pod("a", "web"))
    said = command("why", static, "pods/shop/a", "-A", "--standalone", handlers=RECONCILING)
    assert f"\nReplica {owner} of 3 handles it: {named} in range {number}.\n" in said.output


def test_why_keeps_silent_if_the_cluster_does_not_tell(teams: EmbeddedCluster, command: Command) -> None:
    teams.create(pod("a", "web"))
    said = command("why", SHARDED, "pods/a", "--standalone", "-o", "json", handlers=RECONCILING)
    assert "replica" not in json.loads(said.output)
