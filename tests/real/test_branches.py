"""One cache kept by several lists and watches, under `kopf run` against the real API server and the embedded
one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.apiserver.cluster import Cluster, User
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.test_skeleton import create, delete, kopf_may_look_around, pod

pytestmark = pytest.mark.real
RUNS_ON = ["real"]  # tests/informer/test_branches.py shows the same on the embedded server, without Kopf.

MOVES = 50

BEGIN = """
import asyncio, os
import kopf
import kopf_selectcache as selectcache
from kopf_selectcache import Selector

INFRA = os.environ['INFRA']

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['{kind}'] = {filter}
"""

EITHER = BEGIN.format(
    kind="v1/pods", filter="['app=web', 'tier=gold', Selector(names=['ca'], namespaces=[INFRA])]"
)
NAMES = BEGIN.format(kind="v1/secrets", filter="Selector(names=['ca', 'tls'], namespaces=[INFRA])")
BOTH = BEGIN.format(kind="v1/secrets", filter="['app=web', Selector(names=['ca'], namespaces=[INFRA])]")
WEB = BEGIN.format(kind="v1/pods", filter="'app=web'")

READERS = """
def read(cache, namespace, log):
    try:
        metadata = cache.get('pods', 'mover', namespace=namespace)['metadata']
        now = f"{metadata['resourceVersion']} {metadata['labels']}"
    except selectcache.ReadError as error:
        now = f"0 {type(error).__name__}"
    if log.last != now:
        log.write(now)

class Log:
    def __init__(self, file):
        self.file, self.last = open(file, 'a', buffering=1), None

    def write(self, line):
        self.last = line
        self.file.write(line + '\\n')

@kopf.daemon('configmaps', labels={'reader': 'yes'})
@selectcache.with_cache
async def read_on_the_loop(cache, namespace, stopped, **_):
    log = Log('reads-loop')
    while not stopped:
        read(cache, namespace, log)
        await asyncio.sleep(0)

@kopf.daemon('configmaps', labels={'reader': 'yes'})
@selectcache.with_cache
def read_in_a_thread(cache, namespace, stopped, **_):
    log = Log('reads-thread')
    while not stopped:
        read(cache, namespace, log)
"""

WATCHED = ("list", "watch")
OWN: Sequence[Mapping[str, Sequence[str]]] = (
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
)
"""The resources that Kopf needs to call a handler for admission."""


@pytest.fixture
def shop(api: Cluster) -> str:
    return api.namespace(prefix="shop")


@pytest.fixture
def infra(api: Cluster) -> str:
    return api.namespace(prefix="infra")


def operating(
    folder: Path, api: Cluster, source: str, *namespaces: str, infra: str, user: User | None = None
) -> Operator:
    return Operator(
        folder / "operator",
        api,
        source,
        namespaces=namespaces,
        env={"INFRA": infra},
        token=user.token if user is not None else None,
    )


def relabel(api: Cluster, namespace: str, name: str, **labels: str | None) -> str:
    """Change labels of a pod; give its version since."""
    changed = api.request(
        "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", body={"metadata": {"labels": labels}}
    )
    version: str = changed["metadata"]["resourceVersion"]
    return version


def make_secret(api: Cluster, namespace: str, name: str, **labels: str) -> None:
    api.request(
        "POST", f"/api/v1/namespaces/{namespace}/secrets", body={"metadata": {"name": name, "labels": labels}}
    )


def may(*names: str) -> dict[str, list[str]]:
    """A rule to list and watch secrets of these names, or all."""
    return {"apiGroups": [""], "resources": ["secrets"], "verbs": [*WATCHED]} | (
        {"resourceNames": [*names]} if names else {}
    )


def uid_of(api: Cluster, namespace: str, name: str) -> str:
    uid: str = api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")["metadata"]["uid"]
    return uid


def get(kind: str, name: str, namespace: str) -> str:
    return f"cache.get('{kind}', '{name}', namespace='{namespace}')['metadata']['name']"


def listed(read: str) -> str:
    return f"sorted(each['metadata']['name'] for each in cache.{read})"


# ---- What moves between branches.


def test_a_pod_that_moves_from_branch_to_branch_is_never_absent_and_never_goes_back(
    api: Cluster, shop: str, infra: str, tmp_path: Path
) -> None:
    create(api, shop, pod("mover", app="web"))
    with operating(tmp_path, api, EITHER + READERS, shop, infra=infra) as operator:
        logs = [operator.folder / f"reads-{where}" for where in ("loop", "thread")]

        def reads() -> list[list[str]]:
            return [log.read_text().split("\n")[:-1] if log.exists() else [] for log in logs]

        def all_have_read(version: str) -> bool:
            return all(read and read[-1].startswith(f"{version} ") for read in reads())

        api.request(
            "POST",
            f"/api/v1/namespaces/{shop}/configmaps",
            body={"metadata": {"name": "reader", "labels": {"reader": "yes"}}},
        )
        wait_until(lambda: all(reads()), "both readers to read")
        for move in range(MOVES):
            there = relabel(api, shop, "mover", app=None, tier="gold")
            if move % 5 == 0:  # In between, one move comes upon the other.
                wait_until(lambda version=there: all_have_read(version), "it to have moved")  # type: ignore[misc]
            back = relabel(api, shop, "mover", app="web", tier=None)
        wait_until(lambda: all_have_read(back), "it to be back")
        for read in reads():
            versions = [int(line.partition(" ")[0]) for line in read]
            assert "0" not in {line[0] for line in read}, "absent"
            assert versions == sorted(set(versions)), "it went back"
            assert {line.partition(" ")[2] for line in read} == {"{'app': 'web'}", "{'tier': 'gold'}"}
            assert len(versions) > MOVES // 5, "it was seen on the move"


def test_an_object_leaves_with_its_last_branch_and_stays_with_any_other(
    api: Cluster, shop: str, infra: str, tmp_path: Path
) -> None:
    create(api, shop, *(pod(name, app="web", tier="gold") for name in ("stays", "leaves", "is-deleted")))
    create(api, infra, pod("ca"), pod("other", app="web"))
    with operating(tmp_path, api, EITHER, shop, infra=infra) as operator:
        operator.until(listed("list_cached('pods')"), ["ca", "is-deleted", "leaves", "stays"])
        relabel(api, shop, "stays", app=None)
        relabel(api, shop, "leaves", app=None, tier=None)
        delete(api, shop, "is-deleted")
        operator.until(listed("list_cached('pods')"), ["ca", "stays"])
        hidden = operator.ask(get("pods", "leaves", shop))
        assert (hidden.error, hidden.reason) == ("OutsideFilter", "hidden")
        assert "which only has app=web or tier=gold" in hidden.text
        delete(api, infra, "ca")
        operator.until(get("pods", "ca", infra), "NotFound")
        assert operator.ask(get("pods", "other", infra)).error == "OutsideFilter"


def test_gone_tells_a_deleted_object_from_one_that_left(
    api: Cluster, shop: str, infra: str, tmp_path: Path
) -> None:
    names = ("stays", "leaves", "is-deleted", "is-replaced")
    create(api, shop, *(pod(name, app="web", tier="gold") for name in names))
    uids = {name: uid_of(api, shop, name) for name in names}
    with operating(tmp_path, api, EITHER, shop, infra=infra) as operator:
        operator.until(listed("list_cached('pods')"), sorted(names))
        relabel(api, shop, "stays", app=None)
        relabel(api, shop, "leaves", app=None, tier=None)
        delete(api, shop, "is-deleted")
        delete(api, shop, "is-replaced")
        create(api, shop, pod("is-replaced", app="web"))
        operator.until(listed("list_cached('pods')"), ["is-replaced", "stays"])

        def gone(name: str, uid: str = "") -> object:
            return operator.ask(
                f"cache.is_deleted('pods', '{name}', namespace='{shop}', uid={uid or None!r})"
            ).value

        assert {name: gone(name, uid) for name, uid in uids.items()} == {
            "stays": False,
            "leaves": False,
            "is-deleted": True,
            "is-replaced": True,
        }
        assert {name: gone(name) for name in names} == {
            "stays": False,
            "leaves": False,
            "is-deleted": True,
            "is-replaced": False,
        }


# ---- Which permissions it takes.


def test_names_take_no_more_than_a_role_with_these_names_and_one_that_is_not_there_is_proved_absent(
    api: Cluster, shop: str, infra: str, tmp_path: Path
) -> None:
    make_secret(api, infra, "ca")
    make_secret(api, infra, "key")
    user = api.user()
    api.grant(user, OWN, namespace=shop)
    api.grant(user, [may("ca", "tls")], namespace=infra)
    kopf_may_look_around(api, user)
    with operating(tmp_path, api, NAMES, shop, infra=infra, user=user) as operator:
        operator.until(get("secrets", "ca", infra), "ca")
        absent = operator.ask(get("secrets", "tls", infra))
        assert (absent.error, absent.reason) == ("NotFound", None)
        assert operator.ask(listed(f"list('secrets', names=['ca', 'tls'], namespace='{infra}')")).value == [
            "ca"
        ]
        assert operator.ask(get("secrets", "key", infra)).error == "OutsideFilter"
        make_secret(api, infra, "tls")
        operator.until(get("secrets", "tls", infra), "tls")
        assert "Forbidden" not in operator.log


def test_a_right_that_one_branch_lacks_spoils_its_reads_alone_and_once_granted_they_heal(
    api: Cluster, shop: str, infra: str, tmp_path: Path
) -> None:
    make_secret(api, shop, "ours", app="web")
    make_secret(api, infra, "ca")
    user = api.user()
    api.grant(user, [*OWN, may()], namespace=shop)
    kopf_may_look_around(api, user)
    with operating(tmp_path, api, BOTH, shop, infra=infra, user=user) as operator:
        operator.until(get("secrets", "ours", shop), "ours")
        operator.until(get("secrets", "ca", infra), "Forbidden")
        refused = operator.ask(get("secrets", "ca", infra))
        rule = (
            f"the verbs list and watch in the namespace {infra}: apiGroups: [''], resources: ['secrets'],"
            " resourceNames: ['ca']"
        )
        assert rule in refused.text
        assert operator.ask(listed("list_cached('secrets')")).error == "Forbidden"
        assert operator.ask(listed(f"list('secrets', namespace='{shop}', labels='app=web')")).value == [
            "ours"
        ]
        assert operator.ask(get("secrets", "other", shop)).error == "OutsideFilter"
        api.grant(user, [may("ca")], namespace=infra)
        operator.until(get("secrets", "ca", infra), "ca")
        assert operator.ask(listed("list_cached('secrets')")).value == ["ca", "ours"]


# ---- Which namespaces.


def test_all_namespaces_that_the_operator_is_run_for_are_cached_and_no_others(
    api: Cluster, shop: str, infra: str, tmp_path: Path
) -> None:
    other = api.namespace()
    create(api, shop, pod("web-1", app="web"))
    create(api, infra, pod("web-2", app="web"))
    create(api, other, pod("web-3", app="web"))
    user = api.user()
    for namespace in (shop, infra):
        api.grant(
            user, [*OWN, {"apiGroups": [""], "resources": ["pods"], "verbs": [*WATCHED]}], namespace=namespace
        )
    kopf_may_look_around(api, user)
    with operating(tmp_path, api, WEB, shop, infra, infra=infra, user=user) as operator:
        both = listed(f"list('pods', namespace=['{shop}', '{infra}'], labels='app=web')")
        operator.until(both, ["web-1", "web-2"])
        create(api, infra, pod("web-4", app="web"))
        operator.until(both, ["web-1", "web-2", "web-4"])
        for read in (
            listed("list('pods', labels='app=web')"),
            listed(f"list_cached('pods', namespace='{other}')"),
        ):
            assert operator.ask(read).error == "OutsideFilter"
