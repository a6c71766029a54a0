"""The command `check`: the objects that caches would hold, counted, and the memory that they would take."""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import sys
from base64 import b64encode
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from kopf_selectcache.cli.check import add_arguments, checked
from kopf_selectcache.core.store.packing import OVERHEAD_BYTES
from kopf_selectcache.settings.checks import readable
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from kopf_selectcache.testing.sample_objects import Population
from tests.cli.conftest import DEFINITION, HEAD, Command, parsed, pod

pytestmark = pytest.mark.usefixtures("cluster")


def parsed_arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(given)


class TestWhatWouldBeHeld:
    @pytest.mark.usefixtures("busy")
    def test_objects_are_counted_against_all_there_are(self, command: Command) -> None:
        said = command("check", "select['v1/pods'] = 'app=web'")
        assert (said.code, said.errors) == (0, "")
        assert said.output.splitlines()[1].split()[:5] == ["pods", "app=web", "3", "of", "5"]
        found = parsed(command("check", "select['v1/pods'] = 'app=web'", "-o", "json"))["caches"][0]
        assert found["memoryBytes"] == found["cached"]["bytes"] + 3 * OVERHEAD_BYTES
        assert said.output.splitlines()[-1] == "1 cache, 3 objects, under 1 MiB. No problems found."
        assert (
            f"    in memory: {readable(found['memoryBytes'])}\n"
            in command("check", "select['v1/pods'] = 'app=web'", "-o", "wide").output
        )

    def test_objects_in_namespaces_by_label_are_counted(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.namespace("shop", tenant="yes")
        cluster.create(pod("a", "web", namespace="shop"), pod("b", "web"))
        line = "select['v1/pods'] = Selector(namespaces=LabelSelector.parse('tenant=yes'))"
        (found,) = parsed(command("check", line, "-o", "json"))["caches"]
        assert found["cached"]["objects"] == 1

    def test_bytes_are_those_that_the_cache_would_keep(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.create(pod("big", "web", size=50_000))
        whole = parsed(command("check", "select['v1/pods'] = 'app=web'", "-o", "json"))["caches"][0]
        cut = parsed(
            command(
                "check", "select['v1/pods'] = Cached('app=web', drop=['metadata.annotations'])", "-o", "json"
            )
        )["caches"][0]
        assert 50_000 < whole["cached"]["bytes"] < 60_000
        assert cut["cached"]["bytes"] < 5_000
        assert cut["all"]["bytes"] > 50_000
        assert cut["kept"] == "drop=['metadata.annotations']"

    @pytest.mark.usefixtures("busy")
    def test_an_object_that_two_watches_hold_counts_once(self, command: Command) -> None:
        said = parsed(
            command(
                "check",
                "select['v1/pods'] = ['app=web', Selector(names=['web-1', 'db-0'], namespaces=['default'])]",
                "-o",
                "json",
            )
        )
        assert said["caches"][0]["cached"]["objects"] == 4

    def test_objects_are_counted_by_their_metadata_in_pages(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.create(*(pod(f"web-{number}", "web") for number in range(1001)))
        said = parsed(command("check", "select['v1/pods'] = 'app=web'", "-o", "json"))
        assert said["caches"][0]["cached"]["objects"] == said["caches"][0]["all"]["objects"] == 1001
        limits = [
            int(each.query["limit"])
            for each in cluster.requests
            if (each.verb, each.resource) == ("list", "pods")
        ]
        assert sorted(limits, reverse=True)[:4] == [
            500,
            500,
            500,
            100,
        ]  # Whole objects come in the small ones alone.

    def test_where_counting_takes_long_it_is_shown_how_far_it_is(
        self,
        cluster: EmbeddedCluster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        cluster.create(*(pod(f"web-{number}", "web") for number in range(501)))
        monkeypatch.setattr(sys, "path", [*sys.path])
        (tmp_path / "web.py").write_text(f"{HEAD}    select['v1/pods'] = 'app=web'\n")
        shown, seconds = io.StringIO(), itertools.count(step=10)
        asyncio.run(
            checked(parsed_arguments(str(tmp_path / "web.py")), errors=shown, clock=lambda: next(seconds))
        )
        assert shown.getvalue().splitlines() == ["counting v1/pods: 500", "counting v1/pods: 501"]

    @pytest.mark.usefixtures("busy")
    def test_names_that_share_a_watch_are_counted_alone(self, command: Command) -> None:
        declared = (
            "select['v1/pods'] = Cached(Selector(names=['web-1', 'db-0'], namespaces=['default']),"
            " share_watches=True)"
        )
        said = parsed(command("check", declared, "-o", "json"))["caches"][0]
        assert said["cached"]["objects"] == said["cached"]["sampledObjects"] == 2

    def test_a_filter_without_namespaces_is_of_those_that_the_operator_watches(
        self, busy: EmbeddedCluster, command: Command
    ) -> None:
        busy.create(
            {"kind": "Namespace", "metadata": {"name": "shop"}}, pod("web-9", "web", namespace="shop")
        )
        counted = [
            parsed(command("check", "select['v1/pods'] = 'app=web'", "-o", "json", *where))["caches"][0]
            for where in ((), ("-A",), ("-n", "shop"), ("-n", "shop", "-n", "default"))
        ]
        assert [(each["cached"]["objects"], each["all"]["objects"]) for each in counted] == [
            (4, 6),
            (4, 6),
            (1, 1),
            (4, 6),
        ]

    def test_without_the_right_to_list_all_the_named_namespaces_are_counted(
        self,
        cluster: EmbeddedCluster,
        command: Command,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        cluster.namespace("infra")
        cluster.create(pod("web-1", "web", namespace="infra"), pod("web-2", "db", namespace="infra"))
        token = cluster.user(
            "reader",
            [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}],
            namespace="infra",
        )
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "reader", token=token)))
        said = parsed(
            command("check", "select['v1/pods'] = Selector('app=web', namespaces=['infra'])", "-o", "json")
        )["caches"][0]
        assert (said["cached"]["objects"], said["all"]["objects"]) == (1, 2)

    def test_more_than_may_be_held_is_to_be_changed(self, cluster: EmbeddedCluster, command: Command) -> None:
        cluster.create(*(pod(f"web-{number}", "web", size=50_000) for number in range(10)))
        said = command("check", "select['v1/pods'] = Cached('app=web', max_bytes='300Ki')")
        assert said.code == 1
        assert "! pods: 10 objects would take about 49" in said.output
        assert "of memory, and max_bytes allows '300Ki'. Select or keep less in" in said.output
        said = command("check", "settings.selectcache.max_bytes = '300Ki'\nselect['v1/pods'] = 'app=web'")
        assert said.code == 1
        assert "! all caches together would take about 49" in said.output
        assert (
            "of memory, and settings.selectcache.max_bytes allows '300Ki'. Narrow their filters, or"
            " allow more: settings.selectcache.max_bytes = '" in said.output
        )
        assert (
            command(
                "check",
                "settings.selectcache.max_bytes = '1Mi'\nselect['v1/pods'] = Cached('app=web',"
                " max_bytes='1Mi')",
            ).code
            == 0
        )

    @pytest.mark.parametrize(
        ("many", "storage", "packs"),
        [
            (110, "auto", True),
            (110, "raw", False),
            (50, "auto", False),
            (50, "packed", True),
        ],
    )
    def test_memory_is_reckoned_as_objects_would_be_stored(
        self,
        cluster: EmbeddedCluster,
        command: Command,
        many: int,
        storage: str,
        packs: bool,
    ) -> None:
        for made in Population(seed=7).pods(many):
            del made["metadata"]["ownerReferences"]  # The owners do not exist.
            cluster.create(made)
        for declared in (
            f"select['v1/pods'] = Cached(Selector(), storage='{storage}')",
            f"settings.selectcache.storage = '{storage}'\nselect['v1/pods'] = Selector()",
        ):
            said = parsed(command("check", declared, "-A", "-o", "json"))["caches"][0]
            json, memory = said["cached"]["bytes"], said["memoryBytes"] - many * OVERHEAD_BYTES
            assert 0.1 * json < memory < 0.6 * json if packs else memory == json

    def test_data_that_packing_makes_no_smaller_is_reckoned_at_full_size(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        chance = Random(1)
        cluster.create(
            *(
                {
                    "kind": "Secret",
                    "metadata": {"name": f"s{number}"},
                    "data": {"key": b64encode(chance.randbytes(1500)).decode()},
                }
                for number in range(150)
            )
        )
        said = parsed(command("check", "select['v1/secrets'] = Cached(Selector())", "-o", "json"))["caches"][
            0
        ]
        assert said["memoryBytes"] == said["cached"]["bytes"] + 150 * OVERHEAD_BYTES

    def test_values_that_are_indexed_are_memory_and_no_json(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.create(*(pod(f"web-{number}", "web", size=5000) for number in range(10)))
        declared = (
            "select['v1/pods'] = Cached('app=web', drop=['metadata.annotations'], index={'notes': lambda obj:"
            " obj['metadata']['annotations']['note']})"
        )
        said = parsed(command("check", declared, "-o", "json"))["caches"][0]
        assert said["cached"]["bytes"] < 10 * 1000 < 10 * 5000 < said["memoryBytes"]

    def test_the_function_of_an_index_that_finds_nothing_is_reported(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.create(*(pod(f"web-{number}", "web") for number in range(20)))
        declared = "select['v1/pods'] = Cached('app=web', index={'n': lambda obj: None})"
        said = command("check", declared)
        assert said.code == 0
        assert (
            "* index={'n': <lambda>} finds none of the 20 objects in the sample. Look at its function."
            in said.output
        )

    def test_objects_that_could_not_be_counted_are_not_taken_for_none(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.create(pod("web-1", "web"), pod("db-1", "db"))
        declared = """
def broken(obj): return obj if obj['metadata']['name'] == 'web-1' else None
select['v1/pods'] = Cached([Selector('app=web'), Selector(names=['db-1'], namespaces=['default'])], transform=broken)
"""  # The operator has long lines.  # noqa: E501
        said = command("check", declared)
        assert said.code == 1
        assert " ? of 2 " in said.output.splitlines()[1]

    def test_indexes_that_would_bar_the_cache_from_its_objects_are_reported(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.create(pod("web-1", "web"))
        said = command(
            "check",
            "select['v1/pods'] = Cached('app=web', index={'node': lambda pod: pod['spec']['canary']})",
        )
        assert said.code == 1
        assert (
            "Pod, default/web-1, can't be indexed: the function of the index 'node' raised KeyError at "
            in said.output
        )
        assert (
            "Correct index= of settings.selectcache.selectors['v1/pods']: it must return a text, a list of"
            " texts, a dict as for @kopf.index, or None for an object without a value" in said.output
        )

    def test_wide_shows_each_list_and_watch(self, command: Command) -> None:
        said = command(
            "check",
            "select['v1/secrets'] = Selector(names=['ca', 'tls'], namespaces=['infra'])",
            "-o",
            "wide",
        )
        assert (
            "    0 in /api/v1/namespaces/infra/secrets?fieldSelector=metadata.name=tls"
            in said.output.splitlines()
        )

    @pytest.mark.usefixtures("busy")
    def test_the_objects_inside_of_a_split_cache_are_counted(self, command: Command) -> None:
        declared = "select['v1/pods'] = selectcache.Cached('app=%s', outside='metadata')"
        assert "  3 of 5, 2 outside  " in command("check", declared % "web").output
        (found,) = parsed(command("check", declared % "web", "-o", "json"))["caches"]
        assert (found["cached"]["objects"], found["outside"]) == (5, 2)
        streams = [(each["cached"]["objects"], each["outside"]) for each in found["watches"]]
        assert streams == [(3, False), (2, True)]
        assert "* The filter selects none of the 5 pods." in command("check", declared % "none").output

    def test_wide_shows_where_each_value_comes_from(self, command: Command) -> None:
        declared = """settings.selectcache.defaults.labels = 'app=web'
settings.selectcache.defaults.namespaces = {'infra': '', 'shop': selectcache.UNSET}
select['v1/secrets'] = selectcache.Cached(Selector(), drop=['data'])
select['v1/nodes'] = Selector()"""
        lines = [line.strip() for line in command("check", declared, "-o", "wide").output.splitlines()]
        shown = [line for line in lines if ": from the " in line]
        assert shown == [
            "labels='' in infra: from the default entry of the namespace",
            "labels='app=web' in shop: from the defaults",
            "namespaces={'infra': labels='', 'shop': UNSET}: from the defaults",
            "drop=['data']: from the kind",
            "labels='app=web': from the defaults",
        ]
        assert "page_limit=500: from settings.selectcache" in lines
        plain = parsed(command("check", declared, "-o", "json"))
        assert shown[0] in plain["caches"][0]["origins"]

    def test_default_namespaces_narrow_no_watch_of_a_cluster_scoped_kind(
        self, command: Command, cluster: EmbeddedCluster
    ) -> None:
        definition: dict[str, Any] = deepcopy(DEFINITION)
        definition["spec"]["scope"] = "Cluster"
        cluster.create(definition)
        declared = """settings.selectcache.one_watch = False
settings.selectcache.defaults.namespaces = ['shop']
select['example.com/v1/widgets'] = 'app=web'"""
        handlers = """
@kopf.on.event('example.com', 'v1', 'widgets')
def follow(**_):
    pass
"""
        lines = command("check", declared, "-o", "wide", handlers=handlers).output
        assert "settings.watching.label_selectors" in lines
        assert "metadata.namespace" not in lines
        assert "shop" not in lines

    @pytest.mark.usefixtures("busy")
    def test_yaml_has_the_content_of_json(self, command: Command) -> None:
        declared = "select['v1/pods'] = 'app=web'"
        assert yaml.safe_load(command("check", declared, "-o", "yaml").output) == parsed(
            command("check", declared, "-o", "json")
        )


@pytest.mark.parametrize("count", [0, 2, 32])
def test_20_a_path_that_no_object_can_have_is_a_problem_for_any_number_of_objects(
    cluster: EmbeddedCluster, command: Command, count: int
) -> None:
    cluster.create(*(pod(f"web-{number}", "web") for number in range(count)))
    declared = (
        "select['v1/pods'] = Cached('app=web', keep=['specs.nodeName', 'spec.containers.image',"
        " 'status.hostIP'], index={'n': 'spec.nodeNam', 'image': 'spec.containers.image'})"
    )
    said = command("check", declared)
    assert said.code == 1
    assert [line for line in said.output.splitlines() if line.startswith("  ")] == [
        (
            "  ! pods: keep= names 'specs.nodeName' (did you mean 'spec.nodeName'?), but pods don't"
            " have that field. Correct it in settings.selectcache.selectors['v1/pods']."
        ),
        (
            "  ! pods: index 'n' names 'spec.nodeNam' (did you mean 'spec.nodeName'?), but pods don't"
            " have that field. Correct it in settings.selectcache.selectors['v1/pods']."
        ),
    ]


@pytest.mark.parametrize(("count", "hints"), [(0, 0), (2, 2), (32, 2)])
def test_20_without_the_fields_of_the_server_the_objects_alone_make_a_hint(
    cluster: EmbeddedCluster, command: Command, count: int, hints: int
) -> None:
    cluster.create(*(pod(f"web-{number}", "web") for number in range(count)))
    cluster.faults.add(Refuse(403), where=lambda asked: asked.path.startswith("/openapi"))
    declared = (
        "select['v1/pods'] = Cached('app=web', keep=['spec.nodeNam', 'spec.containers'],"
        " index={'n': 'status.hostIP'})"
    )
    said = command("check", declared)
    assert said.code == 0
    lines = [line for line in said.output.splitlines() if line.startswith("  *")]
    assert len(lines) == hints
    for line, named in zip(
        lines, ("keep= names 'spec.nodeNam'", "index 'n' names 'status.hostIP'"), strict=False
    ):
        assert line == (
            f"  * {named}, but none of {count} pods has a value there. Check the spelling: the server doesn't"
            " publish their fields."
        )


def test_20_a_server_that_does_not_answer_makes_no_field_a_mistake(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.create(pod("web-1", "web"))
    cluster.faults.add(Refuse(503), where=lambda asked: asked.path.startswith("/openapi"))
    said = command("check", "select['v1/pods'] = Cached('app=web', keep=['status.hostIP'])")
    assert (said.code, "names" in said.output) == (0, False)
