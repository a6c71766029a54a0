"""An embedded API's parts, for tests of one of them: a clock that stands still, and names that count."""

from collections.abc import Mapping, Sequence
from typing import Any

from kopf_selectcache.testing.api.history import Stored
from kopf_selectcache.testing.api.rbac import GROUP, Rbac, create_default_roles
from kopf_selectcache.testing.api.users import Users

from .writing import Parts

Rules = Sequence[Mapping[str, Sequence[str]]]


class Environment(Parts):
    """History, kinds, objects, users and rights, wired as in a server; with the steps that tests begin
    with."""

    def __init__(self) -> None:
        super().__init__()
        self.users = Users(
            self.objects,
            self.kinds,
            admin_token="admin-token",
            now=self.now,
            new_token=lambda: f"secret-{next(self.counter)}",
        )
        self.rbac = Rbac(self.objects, self.kinds)
        create_default_roles(self.objects, self.kinds)

    def create(self, group: str, plural: str, name: str, namespace: str = "", **body: Any) -> Stored:
        """Create an object; its namespace is made, if it is not there."""
        if namespace and self.history.get(("", "namespaces"), ("", namespace)) is None:
            self.create("", "namespaces", namespace)
        served = self.kinds.find(group, "v1", plural)
        assert served is not None
        return self.objects.create(
            served, namespace, {"metadata": {"name": name, **body.pop("metadata", {})}, **body}
        )

    def delete(self, group: str, plural: str, name: str, namespace: str = "") -> None:
        served = self.kinds.find(group, "v1", plural)
        assert served is not None
        self.objects.delete(served, namespace, name)

    def define(
        self,
        group: str,
        plural: str,
        kind: str,
        *versions: str,
        namespaced: bool = True,
        status: bool = False,
        **names: Any,
    ) -> None:
        """Define a custom resource; the first version is the one that is stored."""
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        self.create(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            f"{plural}.{group}",
            spec={
                "group": group,
                "scope": "Namespaced" if namespaced else "Cluster",
                "names": {
                    "plural": plural,
                    "kind": kind,
                    "singular": kind.lower(),
                    "listKind": f"{kind}List",
                    **names,
                },
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": version == versions[0],
                        "schema": schema,
                        **({"subresources": {"status": {}}} if status else {}),
                    }
                    for version in versions
                ],
            },
        )

    def grant(
        self, name: str, rules: Rules, *, user: str = "joe", namespace: str = "", role: str = ""
    ) -> None:
        """Give rights to a user: by a role and a binding of this name, or by a binding to a ClusterRole that
        is there."""
        kind = "ClusterRole" if role or not namespace else "Role"
        if not role:
            self.create(GROUP, f"{kind.lower()}s", name, namespace, rules=rules)
        self.create(
            GROUP,
            "rolebindings" if namespace else "clusterrolebindings",
            name,
            namespace,
            roleRef={"apiGroup": GROUP, "kind": kind, "name": role or name},
            subjects=[{"apiGroup": GROUP, "kind": "User", "name": user}],
        )
