"""The command `why`: for one object, the branches of the filter and the missing permissions."""

from __future__ import annotations

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.cli.conftest import DEFINITION, Command, parsed, pod

WEB, AS_WEB = "system:serviceaccount:operators:web", ("--account", "operators/web")
READS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("named", "code", "text"),
    [
        ("pods/web-1", 0, "pods/web-1 in default exists at version "),
        ("pods/default/web-1", 0, "\n  app=web: selects it\n"),
        ("Pod/db-1", 1, "\n  app=web: it has app=db\n"),
        ("po/db-9", 1, "pods/db-9 in default doesn't exist.\nTo look elsewhere: -n NAMESPACE\n"),
        ("po/default/db-9", 1, "pods/db-9 in default doesn't exist.\n"),
        ("po/other/a", 1, "pods/a in other doesn't exist: the namespace 'other' doesn't exist.\n"),
    ],
)
def test_an_object_is_compared_with_the_filter(command: Command, named: str, code: int, text: str) -> None:
    said = command("why", "select['v1/pods'] = 'app=web'", named)
    assert (said.code, said.errors) == (code, "")
    assert text in said.output
    assert ("-n NAMESPACE" in said.output) == (named == "po/db-9")
    assert "The cache" not in said.output, "none runs"


def test_the_namespace_is_that_of_the_operator_if_there_is_one(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.namespace("shop")
    cluster.create(pod("web-1", "web", namespace="shop"), pod("web-2", "web"))
    assert command("why", "select['v1/pods'] = 'app=web'", "pods/web-1", "-n", "shop").code == 0
    said = command("why", "select['v1/pods'] = 'app=web'", "pods/default/web-2", "-n", "shop")
    assert said.code == 1
    assert "\n  app=web (the operator runs with -n shop): it fails namespace=shop\n" in said.output
    assert command("why", "select['v1/pods'] = 'app=web'", "-n", "shop", "pods/web-1").code == 0


def test_namespaces_by_label_are_looked_up(cluster: EmbeddedCluster, command: Command) -> None:
    for name, labels in (("shop", {"tenant": "yes"}), ("infra", {})):
        cluster.create({"kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        cluster.create(pod("web-1", "web", namespace=name))
    declared = "select['v1/pods'] = Selector('app=web', namespaces=LabelSelector.parse('tenant=yes'))"
    assert command("why", declared, "pods/shop/web-1").code == 0
    said = command("why", declared, "pods/infra/web-1")
    assert (said.code, "fails the label tenant=yes of its namespace" in said.output) == (1, True)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("declared", "label", "needs"),
    [
        ("Selector('app=web', fields='spec.nodeName=n1')", "app=web", "spec.nodeName=n1"),
        ("[Selector('app=web', fields='spec.nodeName=n1'), 'app=api']", "app=api", None),
        ("Selector('app=web', names=['x'])", None, None),
    ],
)
def test_labels_are_proposed_with_the_fields_that_were_not_compared(
    command: Command, declared: str, label: str | None, needs: str | None
) -> None:
    declared = f"select['v1/pods'] = {declared}"
    (cache,) = parsed(command("why", declared, "pods/db-1", "-o", "json"))["caches"]
    proposed = f"kubectl -n default label pods db-1 {label} --overwrite" if label else None
    assert (cache["remedy"], cache["remedyNeeds"]) == (proposed, needs)
    said = command("why", declared, "pods/db-1").output
    assert said.endswith(f"\nThat is enough only if it has {needs}.\n") == bool(needs)


def test_each_cache_of_the_kind_is_compared(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.create({"kind": "Node", "metadata": {"name": "n1", "labels": {"app": "web"}}})
    said = command(
        "why", "select['nodes'] = 'app=db'", "nodes/n1", "--kind", "v1/nodes", "--filter", "app=web"
    )
    assert said.code == 0
    assert "  app=db: it has app=web\n" in said.output
    assert "app=web: selects it" in said.output
    assert command("why", "select['nodes'] = 'app=db'", "nodes/default/n1").code == 2


def test_a_cache_of_a_kind_that_is_not_served_is_another_one(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.create(pod("web-1", "web"))
    declared = "select['example.com/v1/gadgets'] = ''\nselect['v1/pods'] = 'app=web'"
    assert command("why", declared, "pods/web-1").code == 0


def test_a_group_that_is_down_is_another_one(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.create(pod("web-1", "web"))
    cluster.faults.add(Refuse(503), where=lambda asked: asked.path == "/apis/example.com")
    declared = "select['example.com/v1/gadgets'] = ''\nselect['v1/pods'] = 'app=web'"
    assert command("why", declared, "pods/web-1").code == 0


def test_the_rights_that_the_cache_lacks_are_named(busy: EmbeddedCluster, command: Command) -> None:
    declared = "select['v1/pods'] = 'app=web'"
    said = command("why", declared, "pods/web-1", *AS_WEB)
    assert said.code == 1
    assert "The cache lacks permission to list, watch pods: - {apiGroups: ['']" in said.output
    busy.user(WEB, [READS])
    assert command("why", declared, "pods/web-1", *AS_WEB).code == 0


def test_a_question_without_an_answer_is_an_error(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.create(DEFINITION)
    declared = "select['v1/pods'] = 'app=web'"
    for named, code, text in (
        ("pods", 2, "'pods' is not an object\nhint: Write it as for kubectl: pod/web-1 -n shop"),
        ("pods/", 2, "is not an object"),
        ("a/b/c/d", 2, "is not an object"),
        ("nodes/n1", 1, "declares no cache of nodes"),
        (
            "gadgets.example.com/a",
            2,
            "gadgets.example.com\nhint: To see all kinds: kubectl api-resources",
        ),
        ("pods/..", 2, "no object can have this name"),
        ("p*/a", 2, "error: 'p*' is not a kind"),
    ):
        said = command("why", declared, named)
        assert (said.code, text in said.errors, said.output) == (code, True, ""), said
    assert command("why", "select['nodes'] = Selector(namespaces=['a'])", "nodes/n1").code == 1


def test_an_object_that_may_not_be_read_is_not_called_absent(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.create(pod("web-1", "web"))
    cluster.faults.add(Refuse(403), verb="get", resource="pods")
    said = command("why", "select['v1/pods'] = 'app=web'", "pods/web-1")
    assert said.code == 2
    assert "Permission is missing to get pods web-1 in default" in said.output


def test_a_secret_is_not_shown(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.create(
        {
            "kind": "Secret",
            "metadata": {"name": "ca", "namespace": "default", "annotations": {"note": "hunter2"}},
            "data": {"password": "aHVudGVyMg=="},
        }
    )
    for declared in ("'app=web'", "Selector(names=['ca'])", "Selector(fields='type=other')"):
        said = command("why", f"select['v1/secrets'] = {declared}", "secrets/ca")
        assert "hunter2" not in said.output + said.errors
        assert "aHVudGVyMg" not in said.output + said.errors
    answered = [asked for asked in cluster.requests if asked.path.endswith("/secrets/ca")]
    assert answered
