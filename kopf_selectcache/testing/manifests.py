"""Manifests -> objects: YAML or JSON, several documents per file, Lists taken apart. No server validates
them.
"""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import yaml

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_FOR_WORDS = ". Of a file or a folder, give the Path: Path('crd.yaml')"

# The C loader is ten times as fast, but it is optional.
_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FASTEST):  # type: ignore[misc]  # Which of the two it is, is known when it runs.
    """A YAML loader like that of Kubernetes, which converts to JSON: dates stay text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _FASTEST.yaml_implicit_resolvers.items()
}


class ManifestError(Exception):
    """A manifest cannot be read; the message names the file and the document."""


def files_in(path: Path) -> list[Path]:
    """Return the manifests of a folder and its subfolders in the order of their names; a file is returned
    alone.
    """
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not path.exists():
        raise ManifestError(f"there is no {path}")
    return [path]


def read_file(path: Path, *, told: Callable[[int], None] = lambda _: None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file; report the bytes as they are read."""
    with path.open("rb") as file:
        yield from _objects(
            _Counted(file, told),
            str(path),
            as_json=path.suffix == ".json",
            may_be_other=path.suffix not in SUFFIXES,
        )


def read_text(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text, which may be indented like the code around it."""
    yield from _objects(
        io.BytesIO(textwrap.dedent(text).encode()), "the text", as_json=False, for_words=_FOR_WORDS
    )


def in_order(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move namespaces and definitions to the front, since other objects need them, and webhooks to the end:
    their servers may not run yet.
    """
    ranks = {
        "Namespace": 0,
        "CustomResourceDefinition": 1,
        "MutatingWebhookConfiguration": 3,
        "ValidatingWebhookConfiguration": 3,
    }
    return sorted(objects, key=lambda obj: ranks.get(obj["kind"], 2))


class _Counted(io.RawIOBase):
    """Report the bytes that are read of a file."""

    def __init__(self, file: BinaryIO, told: Callable[[int], None]) -> None:
        self._file = file
        self._told = told

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self._told(len(data))
        return data


def _objects(
    file: BinaryIO | _Counted, name: str, *, as_json: bool, for_words: str = "", may_be_other: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream. If `may_be_other`, its name is no manifest's: then a parser's error has
    no use for the reader.
    """
    documents = _json_documents(file) if as_json else yaml.load_all(file, Loader=_Loader)
    number = 0
    while True:
        number += 1
        try:
            document = next(documents)
        except StopIteration:
            return
        except (yaml.YAMLError, ValueError) as error:
            raise ManifestError(
                f"{name} isn't a YAML file"
                if may_be_other
                else f"document {number} of {name} can't be read: {error}"
            ) from error
        if document is not None:  # Only comments, or nothing, between two separators.
            yield from _single(
                document, f"document {number} of {name}", for_words if isinstance(document, str) else ""
            )


def _json_documents(file: BinaryIO | _Counted) -> Iterator[Any]:
    """Read JSON documents, one after the other: ten times as fast as YAML."""
    decoder = json.JSONDecoder()
    rest = file.read().decode()
    start = 0
    while True:
        while rest[start : start + 1].isspace() or rest.startswith("---", start):
            start += 3 if rest.startswith("---", start) else 1
        if start == len(rest):
            return
        document, start = decoder.raw_decode(rest, start)
        yield document


def _single(document: object, where: str, advice: str = "") -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise ManifestError(f"{where} isn't a Kubernetes object: it has no kind{advice}")
    if not isinstance(document.get("metadata") or {}, dict):
        raise ManifestError(f"{where} isn't a Kubernetes object: its metadata isn't a mapping")
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _single(_inherited(document, item), where)
    else:
        yield document


def _inherited(listed: Mapping[str, Any], item: object) -> object:
    """Give an item the kind of its list: items in a response have no kind."""
    if not isinstance(item, dict) or listed["kind"] == "List":
        return item
    return {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed.get("apiVersion", "v1"), **item}
