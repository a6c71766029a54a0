"""Namespaces with selectors of their own, under `kopf run` against the real API server: what is held there,
and which rights it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apiserver.cluster import Cluster
from tests.real.operators import Operator
from tests.real.test_branches import OWN, listed
from tests.real.test_skeleton import create, delete, kopf_may_look_around, pod

pytestmark = pytest.mark.real
RUNS_ON = ["real"]  # tests/informer/test_namespaces.py shows the same on the embedded server, without Kopf.

BEGIN = """
import os
import kopf
import kopf_selectcache as selectcache
from kopf_selectcache import ALL_OTHERS, EVERYTHING, UNSET, Cached, Selector

SPACES = os.environ['SPACES'].split()
A, B, C = SPACES[:3]

@kopf.on.startup()
def configure(settings, **_):
    ours = settings.selectcache
    {declare}
"""
DEFAULTS = BEGIN.format(
    declare="""
    ours.defaults.labels = 'app=web'
    ours.defaults.namespaces = {A: UNSET, B: 'app=db', C: EVERYTHING}
    ours.selectors['v1/pods'] = Selector()
    ours.selectors['v1/namespaces'] = Selector(EVERYTHING)
"""
)
OTHERS = BEGIN.format(
    declare="ours.selectors['v1/pods'] = Cached('app=web', namespaces={A: 'app=db', ALL_OTHERS: UNSET})"
)
MANY = BEGIN.format(
    declare="""
    many = [A, B, *(f'n-{number}' for number in range(100))]
    ours.selectors['v1/pods'] = Selector('app=web', namespaces=many)
"""
)
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}


def operating(
    folder: Path, api: Cluster, source: str, spaces: list[str], token: str | None = None
) -> Operator:
    env = {"SPACES": " ".join(spaces)}
    return Operator(folder / "operator", api, source, namespaces=spaces[:1], env=env, token=token)


def fill(api: Cluster, *spaces: str) -> None:
    for space in spaces:
        create(api, space, pod(f"web-{space}", app="web"), pod(f"db-{space}", app="db"))


def test_a_role_in_three_namespaces_of_thirty_is_enough_for_default_namespaces(
    api: Cluster, tmp_path: Path
) -> None:
    spaces = [api.namespace() for _ in range(30)]
    a, b, c, other = spaces[:4]
    fill(api, a, b, c, other)
    user = api.user()
    api.grant(user, OWN, namespace=a)
    for space in (a, b, c):
        api.grant(user, [PODS], namespace=space)
    api.grant(user, [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}])
    kopf_may_look_around(api, user)
    with operating(tmp_path, api, DEFAULTS, spaces, token=user.token) as operator:
        operator.until(listed("list_cached('pods')"), sorted([f"web-{a}", f"db-{b}", f"web-{c}", f"db-{c}"]))
        create(api, b, pod("late", app="db"), pod("web-late", app="web"))
        delete(api, c, f"web-{c}")
        operator.until(listed("list_cached('pods')"), sorted([f"web-{a}", f"db-{b}", "late", f"db-{c}"]))
        assert operator.ask(listed(f"list('pods', namespace='{c}')")).value == [f"db-{c}"]
        for read, reason in (
            (f"list('pods', namespace='{other}', labels='app=web')", "excluded"),
            (f"list('pods', namespace='{b}', labels='app=web')", "excluded"),
            (f"list('pods', namespace='{a}')", None),
        ):
            answer = operator.ask(listed(read))
            assert answer.error == "OutsideFilter", read
            assert reason in (None, answer.reason)
        everywhere = operator.ask(listed("list('namespaces')")).value
        assert {*spaces} <= {*everywhere}, "a cluster-scoped kind has no namespaces"
        origins = operator.ask("[str(each) for each in cache.info('pods').origins]").value
        assert f"labels='app=web' in {a}: from the defaults" in origins
        assert "Forbidden" not in operator.log


def test_all_others_are_the_namespaces_without_an_entry_new_ones_included(
    api: Cluster, tmp_path: Path
) -> None:
    spaces = [api.namespace() for _ in range(3)]
    a, b, c = spaces
    fill(api, *spaces)

    def held(*more: str) -> str:
        within = [a, b, c, *more]
        return (
            "sorted(each['metadata']['name'] for each in cache.list_cached('pods')"
            f" if each['metadata']['namespace'] in {within})"
        )

    operator = Operator(
        tmp_path / "operator",
        api,
        OTHERS,
        namespaces=spaces[:1],
        options=["-A"],
        env={"SPACES": " ".join(spaces)},
    )
    with operator:
        operator.until(held(), sorted([f"db-{a}", f"web-{b}", f"web-{c}"]))
        new = api.namespace()
        fill(api, new)
        operator.until(held(new), sorted([f"db-{a}", f"web-{b}", f"web-{c}", f"web-{new}"]))
        delete(api, a, f"db-{a}")
        delete(api, new, f"web-{new}")
        operator.until(held(new), sorted([f"web-{b}", f"web-{c}"]))
        served = operator.ask(listed(f"list('pods', namespace='{new}', labels='app=web')"))
        assert served.value == []
        assert (
            operator.ask(listed(f"list('pods', namespace='{a}', labels='app=web')")).error == "OutsideFilter"
        )
        assert operator.ask(listed("list('pods', labels='app=web')")).error == "OutsideFilter"


def test_more_namespaces_than_lists_and_watches_are_held_by_one(api: Cluster, tmp_path: Path) -> None:
    spaces = [api.namespace() for _ in range(3)]
    a, b, c = spaces
    fill(api, *spaces)
    user = api.user()
    api.grant(user, OWN, namespace=a)
    api.grant(user, [PODS])
    kopf_may_look_around(api, user)
    with operating(tmp_path, api, MANY, spaces, token=user.token) as operator:
        operator.until(listed("list_cached('pods')"), sorted([f"web-{a}", f"web-{b}"]))
        create(api, b, pod("late", app="web"))
        create(api, c, pod("elsewhere", app="web"))
        operator.until(listed("list_cached('pods')"), sorted([f"web-{a}", f"web-{b}", "late"]))
        assert operator.ask(listed(f"list_cached('pods', namespace='{c}')")).error == "OutsideFilter"


def test_without_the_right_to_list_all_namespaces_each_has_its_own_list(api: Cluster, tmp_path: Path) -> None:
    spaces = [api.namespace() for _ in range(3)]
    a, b, _ = spaces
    fill(api, *spaces)
    user = api.user()
    api.grant(user, OWN, namespace=a)
    kopf_may_look_around(api, user)
    with operating(tmp_path, api, MANY, spaces, token=user.token) as operator:
        operator.until("cache.count('pods')", "Forbidden")
        assert "in the namespace n-" in operator.ask(listed("list_cached('pods')")).text
        api.grant(user, [PODS])
        operator.until(listed("list_cached('pods')"), sorted([f"web-{a}", f"web-{b}"]))
