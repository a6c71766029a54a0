"""Classes that look like those of other clients, which are no part of this environment: tests/clients/ has
the real ones."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch


def model(name: str, module: str = "kubernetes.client.models.any", base: type = object) -> Any:
    """Make a class as `kubernetes` has them."""

    def from_dict(cls: type, obj: dict[str, Any]) -> Any:
        made = cls()
        vars(made).update(obj)
        return made

    return type(
        name,
        (base,),
        {"__module__": module, "openapi_types": {}, "attribute_map": {}, "from_dict": classmethod(from_dict)},
    )


V1Pod = model("V1Pod")


class _Earlier:
    """As `kubernetes_asyncio` has them, and `kubernetes` had before version 37."""

    openapi_types: dict[str, str]

    def __init__(self, *, local_vars_configuration: Any = None, **given: Any) -> None:
        self.local_vars_configuration = (
            local_vars_configuration if local_vars_configuration is not None else object()
        )
        for name in self.openapi_types:
            setattr(self, name, given.get(name))


def earlier(name: str, types: dict[str, str], attributes: dict[str, str]) -> Any:
    module = f"kubernetes_asyncio.client.models.{name.lower()}"
    return type(
        name, (_Earlier,), {"__module__": module, "openapi_types": types, "attribute_map": attributes}
    )


@contextmanager
def imported(classes: Mapping[str, Collection[type]]) -> Iterator[None]:
    """Have the classes in the modules that say which there are, as the clients do when they are imported."""
    modules = {name: ModuleType(name) for name in classes}
    for name, module in modules.items():
        for each in classes[name]:
            setattr(module, each.__name__, each)
    with patch.dict(sys.modules, modules):
        yield


class APIObject:
    """As `pykube` has it."""

    def __init__(self, api: Any, obj: dict[str, Any]) -> None:
        self.api = api
        self.obj = obj

    def update(self) -> None:
        self.api.patch(url="pods")


APIObject.__module__ = "pykube.objects"


class Pod(APIObject):
    version, endpoint, kind = "v1", "pods", "Pod"


class Widget(APIObject):
    """A class of a user's own."""

    version, endpoint, kind = "example.com/v1", "widgets", "Widget"
