"""Classes that look like those of other clients, which are no part of this environment: tests/clients/ has
the real ones."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
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


class _Later:
    """As `kubernetes` has them since version 37, by pydantic."""

    openapi_types: dict[str, str]
    attribute_map: dict[str, str]

    def __init__(self, **given: Any) -> None:
        vars(self).update(dict.fromkeys(map(_stored, self.openapi_types)))
        vars(self).update({_stored(name): value for name, value in given.items()})

    @classmethod
    def model_construct(cls, **given: Any) -> Any:
        made = cls.__new__(cls)
        vars(made).update({_stored(name): None for name in cls.openapi_types if name != "containers"})
        vars(made).update({_stored(name): value for name, value in given.items()})
        return made

    @classmethod
    def from_dict(cls, obj: dict[str, Any]) -> Any:
        models: Any = sys.modules["kubernetes.client.models"]
        given = {}
        for name, key in cls.attribute_map.items():
            item, value = cls.openapi_types[name].removeprefix("list[").removesuffix("]"), obj.get(key)
            model = getattr(models, item, None)
            if model is not None and value is not None:
                several = isinstance(value, list)
                value = [model.from_dict(each) for each in value] if several else model.from_dict(value)
            given[name] = datetime.fromisoformat(value) if item == "datetime" and value else value
        return cls(**given)


def _stored(name: str) -> str:
    return f"var{name}" if name.startswith("_") else name


def _alias(name: str) -> property:
    return property(lambda self: getattr(self, name), lambda self, value: setattr(self, name, value))


def current(name: str, types: dict[str, str], attributes: dict[str, str]) -> Any:
    members: dict[str, Any] = {
        "__module__": f"kubernetes.client.models.{name.lower()}",
        "openapi_types": types,
        "attribute_map": attributes,
    }
    members |= {each: _alias(_stored(each)) for each in types if each.startswith("_")}
    return type(name, (_Later,), members)


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

    def create(self) -> None:
        self.api.post(url="pods")

    def update(self) -> None:
        self.api.patch(url="pods")


APIObject.__module__ = "pykube.objects"


class Pod(APIObject):
    version, endpoint, kind = "v1", "pods", "Pod"


class Widget(APIObject):
    """A class of a user's own."""

    version, endpoint, kind = "example.com/v1", "widgets", "Widget"
