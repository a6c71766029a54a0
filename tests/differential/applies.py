"""Random writes of several managers to custom resources, as data: made from a seed, run on any server."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster

TEXT: Mapping[str, Any] = {"type": "string"}
WORDS: Mapping[str, Any] = {"type": "object", "additionalProperties": TEXT}
SET: Mapping[str, Any] = {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT}
SCHEMA: Mapping[str, Any] = {
    "color": TEXT,
    "size": {"type": "integer"},
    "list": {"type": "array", "items": TEXT},
    "set": SET,
    "map": WORDS,
    "whole": {**WORDS, "x-kubernetes-map-type": "atomic"},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "part": {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
    "parts": {
        "type": "object",
        "additionalProperties": {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
    },
    "keyed": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["id"],
        "items": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": TEXT,
                "v": TEXT,
                "d": {**TEXT, "default": "d"},
                "set": SET,
                "map": WORDS,
            },
        },
    },
    "ports": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {
            "type": "object",
            "required": ["port"],
            "properties": {
                "port": {"type": "integer"},
                "protocol": {**TEXT, "default": "TCP"},
                "name": TEXT,
            },
        },
    },
}


@dataclass(frozen=True)
class Write:
    """One write of one manager: an apply, a merge patch, or a replacement."""

    how: str
    manager: str
    force: bool
    body: Mapping[str, Any]


class _Maker:
    """Makes specs of all kinds of fields."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def spec(self) -> dict[str, Any]:
        makers: Mapping[str, Callable[[], Any]] = {
            "color": self.word,
            "size": lambda: self.rng.randint(0, 2),
            "list": lambda: self.some("abc"),
            "set": lambda: self.some("abcd"),
            "map": self.words,
            "whole": self.words,
            "any": lambda: {key: self.anything() for key in self.some("ab")},
            "part": lambda: {key: self.word() for key in self.some("ab")},
            "parts": lambda: {
                key: {name: self.word() for name in self.some("ab")} for key in self.some("kl")
            },
            "keyed": lambda: [self.item(key) for key in self.some("1234")],
            "ports": self.ports,
        }
        return {key: make() for key, make in makers.items() if self.chance(0.35)}

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def word(self) -> str:
        return self.rng.choice("xyz")

    def words(self) -> dict[str, str]:
        return {key: self.word() for key in self.some("abc")}

    def some(self, letters: str) -> list[str]:
        return self.rng.sample(letters, self.rng.randint(0, len(letters)))

    def anything(self) -> Any:
        return self.rng.choice([1, "x", [1], {"c": self.word()}, {"c": {"d": self.word()}}, {}, []])

    def item(self, key: str) -> dict[str, Any]:
        makers: Mapping[str, Callable[[], Any]] = {
            "v": self.word,
            "set": lambda: self.some("abc"),
            "map": self.words,
        }
        return {"id": key, **{name: make() for name, make in makers.items() if self.chance(0.4)}}

    def ports(self) -> list[dict[str, Any]]:
        found = []
        for port in (1, 2):
            for protocol in self.some("TU"):
                item: dict[str, Any] = {"port": port, "protocol": {"T": "TCP", "U": "UDP"}[protocol]}
                if protocol == "T" and self.chance(0.3):
                    del item["protocol"]
                found.append({**item, **({"name": self.word()} if self.chance(0.5) else {})})
        return found


def sequence(seed: int, length: int) -> list[Write]:
    """Make the writes to one object; the first one applies it."""
    make = _Maker(random.Random(seed))
    writes = []
    for index in range(length):
        how = "apply" if not index or make.chance(0.7) else make.rng.choice(["patch", "replace"])
        body: dict[str, Any] = {"spec": make.spec()} if make.chance(0.95) else {}
        metadata = {"labels": make.words()} if make.chance(0.3) else {}
        manager = make.rng.choice("abc")
        writes.append(Write(how, manager, make.chance(0.5), {**body, "metadata": metadata}))
    return writes


def run(api: Cluster, path: str, typed: Mapping[str, str], writes: list[Write]) -> list[Any]:
    """Make the writes; give what each has made of the object, in words that servers have in common."""
    return [_shown(_answer(api, path, typed, write)) for write in writes]


def _answer(api: Cluster, path: str, typed: Mapping[str, str], write: Write) -> Any:
    metadata = {"name": path.rpartition("/")[2], **write.body["metadata"]}
    body = {**typed, **write.body, "metadata": metadata}
    query: dict[str, object] = {"fieldManager": write.manager}
    try:
        match write.how:
            case "apply":
                query |= {"force": "true"} if write.force else {}
                return api.request(
                    "PATCH", path, body=body, query=query, content_type="application/apply-patch+yaml"
                )
            case "patch":
                return api.request("PATCH", path, body=body, query=query)
            case _:
                metadata["resourceVersion"] = api.request("GET", path)["metadata"]["resourceVersion"]
                return api.request("PUT", path, body=body, query=query)
    except ApiError as error:
        return error.body


def _shown(answer: Any) -> Any:
    metadata = answer["metadata"]
    if answer["kind"] == "Status":
        causes = (answer.get("details") or {}).get("causes") or ()
        # The server words and orders the causes of an invalid object as it likes.
        of_conflict = sorted((cause["message"], cause["field"]) for cause in causes)
        return answer["code"], of_conflict if answer["code"] == 409 else []
    managers = [{**entry, "time": "time" in entry} for entry in metadata.get("managedFields", ())]
    return (
        answer.get("spec"),
        metadata.get("labels"),
        metadata.get("generation"),
        sorted(managers, key=lambda entry: (entry["operation"], entry["manager"])),
    )
