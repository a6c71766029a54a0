"""Handlers of changes under `kopf run`, while connections break: they see the departures of the history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.apiserver.cluster import Cluster
from tests.real.operators import Operator
from tests.real.proxy import Proxy
from tests.real.test_skeleton import create, delete, pod, relabel

FOLLOWING = """
import asyncio
import kopf
import kopf_selectcache as selectcache

departed, present, mistakes = [], {}, []

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/pods'] = ['app in (web,db)', 'tier=gold']

@selectcache.on.change('pods', backoff=0.05)
async def follow(cause, name, uid, old, new, retry, **_):
    if name.startswith('flaky') and not retry:
        raise RuntimeError('once')
    if (uid in present) == (cause == 'entered') and (name != 'brief' or new):
        mistakes.append([name, uid, cause])
    if new is None:
        present.pop(uid, None)
        departed.append([name, uid])
    else:
        present[uid] = name
"""


def uid_of(api: Cluster, namespace: str, name: str) -> str:
    found: dict[str, Any] = api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
    return str(found["metadata"]["uid"])


def test_15_a_handler_sees_each_departure_of_the_history_once_though_connections_break(
    api: Cluster, tmp_path: Path
) -> None:
    namespace = api.namespace()
    names = ["deleted", "flaky", "again", "flips", "leaves", "moves", "stays"]
    create(api, namespace, *(pod(name, app="web", tier="gold") for name in names))
    uids = {name: uid_of(api, namespace, name) for name in names}
    with (
        Proxy(api) as proxy,
        Operator(tmp_path / "operator", api, FOLLOWING, namespaces=[namespace], server=proxy.url) as operator,
    ):
        operator.until("sorted(present.values())", sorted(names))
        for round_ in range(3):
            proxy.hold(lambda asked: asked.path.endswith("/pods"))
            proxy.end_streams(lambda asked: asked.path.endswith("/pods"))
            if round_ == 0:
                delete(api, namespace, "deleted")
                delete(api, namespace, "again")
                create(api, namespace, pod("again", app="web"))
                relabel(api, namespace, "moves", app="db")
            elif round_ == 1:
                delete(api, namespace, "flaky")
                relabel(api, namespace, "leaves", app="other", tier="tin")
                relabel(api, namespace, "flips", app="db")
            else:
                relabel(api, namespace, "flips", app="web")
                create(api, namespace, pod("brief", app="web"))
                delete(api, namespace, "brief")
            create(api, namespace, pod(f"last-{round_}", app="web", tier="gold"))
            proxy.release()
            operator.until(f"'last-{round_}' in present.values()", True)
        departed = [[name, uids[name]] for name in ("again", "deleted", "flaky", "leaves")]
        operator.until("sorted(each for each in departed if each[0] != 'brief')", departed)
        here = sorted(["again", "flips", "last-0", "last-1", "last-2", "moves", "stays"])
        operator.until("sorted(present.values())", here)
        assert operator.ask("mistakes").value == []
        brief = operator.ask("[each for each in departed if each[0] == 'brief']").value
        assert len(brief) <= 1, "a watch that goes on reports it, perhaps without its entry; a list does not"
        assert uid_of(api, namespace, "again") in operator.ask("list(present)").value
