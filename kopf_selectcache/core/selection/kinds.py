"""The kinds of objects, the keys that name them, and the field labels by which the server selects them. A
resource is a kind in one of its versions.

A field label is no JSON path: the server decides which ones a kind has, and renames some before it compares
(a pod's `spec.host` is `spec.nodeName`). The labels are generated from Kubernetes' own code
(`_field_table.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import quote

from kopf_selectcache.core.errors import BadField, BadText

from ._field_table import KINDS
from .field_values import (
    OWN_FIELDS,
    Custom,
    Extractor,
    Nothing,
    String,
    as_list,
    as_mapping,
    as_mappings,
    as_text,
)
from .values import (
    ALWAYS_EMPTY,
    ANYTHING,
    BOOLEAN,
    INTEGER,
    NAME,
    NAMESPACE,
    NAMESPACE_OR_NONE,
    NO_NAMESPACE,
    Domain,
)

KindKey: TypeAlias = str | tuple[str, ...]
"""A key, by which users name a kind: `'pods'`, `'jobs.batch'`, `'batch/v1/jobs'`, `('batch', 'v1', 'jobs')`,
..."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field label of one kind: the values it can have, and the one that an object has."""

    label: str
    domain: Domain
    same_as: str
    """The canonical field label of this one and its aliases: aliases are one dimension."""
    value: Extractor

    def path_of(self, value: str) -> tuple[str, ...] | None:
        """Return the path at which each object with this value, and no other object, has it as a string; None
        if there is none.

        An index of that path answers for the field. No path does where absence has the value (an empty
        string, a default, `false`, `0`), where several paths can have it, or where the server prints a number
        or a boolean the same way.

        >>> spec = find('pods').fields
        >>> spec['spec.nodeName'].path_of('n1'), spec['spec.restartPolicy'].path_of('Never'), spec['spec.restartPolicy'].path_of('Always')
        (('spec', 'nodeName'), ('spec', 'restartPolicy'), None)
        """  # A line of an example is not broken.  # noqa: E501
        match self.value:
            case String((path,), default) if value not in ("", default):
                return path
            case Custom((path,)) if (
                value not in ("", "true", "false") and not value.removeprefix("-").isdecimal()
            ):
                return path
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects, with all field labels that the server accepts for it.

    >>> sorted(find('jobs').fields)
    ['metadata.name', 'metadata.namespace', 'status.successful']
    >>> find('jobs').field('status.successful').value({'kind': 'Job', 'status': {}})
    '0'
    """

    group: str
    kind: str
    plural: str
    namespaced: bool | None
    """None before the server was asked."""
    fields: Mapping[str, Field] = field(repr=False, hash=False)
    versions: tuple[str, ...] = ()
    """The API versions for which the field labels hold."""
    names: frozenset[str] = frozenset()
    """The kind, the plural, the singular and the short names: each of them names the kind in a key."""

    def field(self, label: str) -> Field:
        try:
            return self.fields[label]
        except KeyError:
            raise BadField(label, kind=self.kind, selectable=tuple(sorted(self.fields))) from None

    def values(self, obj: Mapping[str, Any]) -> dict[str, str]:
        """Return the value of each field label for this object."""
        return {label: found.value(obj) for label, found in self.fields.items()}

    @classmethod
    def unknown(
        cls,
        group: str,
        kind: str,
        plural: str,
        *,
        namespaced: bool | None = None,
        names: Collection[str] = (),
    ) -> Kind:
        """Make a kind of which only that is known which is true of every kind, and what else it is called,
        perhaps.
        """
        return cls(
            group, kind, plural, namespaced, _METADATA[namespaced], names=frozenset({kind, plural, *names})
        )

    @classmethod
    def custom(cls, crd: Mapping[str, Any], version: str) -> Kind:
        """Make the kind that this CustomResourceDefinition defines, as served by one of its versions.

        A field label is a selectable field's path without its leading dot. The server prints the value as it
        is, and nothing for one that is null or absent: other than for built-in kinds, that is neither `false`
        nor `0`. Only defaults of the schema help, and they are in the objects as they are served.

        One case cannot be told from the object, and is wrong here: with the alpha feature
        CBORServingAndStorage an integer that was written as 1e6 is compared as `1e+06`, while the server
        shows it as 1000000.
        """
        spec = as_mapping(crd.get("spec"))
        names = as_mapping(spec.get("names"))
        namespaced = spec.get("scope") == "Namespaced"
        # Built-in kinds without a namespace accept `metadata.namespace`, and it is empty; custom resources do
        # not.
        fields = [_NAME, _IN_NAMESPACE] if namespaced else [_NAME]
        for served in as_mappings(spec.get("versions")):
            if served.get("name") == version:
                schema = as_mapping(as_mapping(served.get("schema")).get("openAPIV3Schema"))
                paths = [
                    as_text(each.get("jsonPath")) for each in as_mappings(served.get("selectableFields"))
                ]
                fields += (_selectable(path, schema) for path in paths if _is_plain(path))
        kind, plural = as_text(names.get("kind")), as_text(names.get("plural"))
        aliases = [as_text(names.get("singular")), *map(as_text, as_list(names.get("shortNames")))]
        return cls(
            as_text(spec.get("group")),
            kind,
            plural,
            namespaced,
            _by_label(*fields),
            (version,),
            frozenset({kind, plural, *filter(None, aliases)}),
        )


def find(key: KindKey | Kind) -> Kind | None:
    """Return the built-in kind that this key means, or None if it means none of Kubernetes' own.

    Keys are those of Kopf's decorators, plus a tuple's parts joined by slashes:

    >>> {find(key).kind for key in ['jobs', 'job', 'Job', 'jobs.v1', 'jobs.batch', 'jobs.v1.batch', 'batch/v1/jobs',
    ...                             ('jobs',), ('batch', 'jobs'), ('batch/v1', 'jobs'), ('batch', 'v1', 'jobs')]}
    {'Job'}

    As with kubectl, the core group wins where a name alone means several kinds:

    >>> find('events').group, find('events.events.k8s.io').group
    ('', 'events.k8s.io')
    """  # A line of an example is not broken.  # noqa: E501
    if isinstance(key, Kind):
        return key
    group, version, name = parse_key(key)
    for kind in _BY_NAME.get(name, ()):
        if (group is None or group == kind.group) and (version is None or version in kind.versions):
            return kind
    return None


def parse_key(key: KindKey) -> tuple[str | None, str | None, str]:
    """Read a key as Kopf reads the arguments of its decorators: the group and version, where given, and a
    name.
    """
    match tuple(key.split("/")) if isinstance(key, str) else key:
        case (text,):
            name, dot, rest = text.partition(".")
            version, _, group = rest.partition(".")
            if is_version(version):
                return (group if rest != version else None), version, name
            return (rest if dot else None), None, name
        case ("v1", name):
            return "", "v1", name
        case (prefix, name):
            group, slash, version = prefix.rpartition("/")
            return (group, version, name) if slash else (prefix, None, name)
        case (group, version, name):
            return group, version, name
        case _:
            return None, None, ""


def is_version(text: str) -> bool:
    """Return True if this looks like `v1` or `v2beta3`; anything else after a resource's first dot is a
    group.
    """
    major, _, minor = text.removeprefix("v").replace("alpha", "beta", 1).partition("beta")
    return text.startswith("v") and major.isdecimal() and (minor.isdecimal() or text == f"v{major}")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind and the version in which it is read.

    >>> jobs = Resource(find('jobs'), 'v1')
    >>> str(jobs), jobs.path('shop'), jobs.path('shop', 'nightly')
    ('jobs.batch', '/apis/batch/v1/namespaces/shop/jobs', '/apis/batch/v1/namespaces/shop/jobs/nightly')
    """

    kind: Kind
    version: str
    fields_known: bool = True
    """False for a custom resource whose definition may not be read: it may have further field labels."""

    def __str__(self) -> str:
        return f"{self.kind.plural}.{self.kind.group}" if self.kind.group else self.kind.plural

    @property
    def domains(self) -> Kind | None:
        """The kind for verdicts. None if its field labels are not known: then fields are free strings."""
        return self.kind if self.fields_known else None

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the path of all objects, of those in a namespace, or of one object.

        Names often come from objects of others. A name must not lead to another object, a subresource, or all
        objects.
        """
        parts = ["/apis" if self.kind.group else "/api", self.api_version]
        if namespace:
            parts += ["namespaces", _segment(namespace)]
        parts += [self.kind.plural, *([_segment(name)] if name is not None else [])]
        return "/".join(parts)


def _segment(name: str) -> str:
    # Kubernetes refuses these names for every kind. Encoding a slash would not help: the server decodes the
    # path before it splits it.
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise BadText("no object can have this name", text=name, column=1)
    return quote(name, safe="")


_NAME = Field("metadata.name", NAME, "metadata.name", String((("metadata", "name"),)))
_IN_NAMESPACE = Field(
    "metadata.namespace", NAMESPACE, "metadata.namespace", String((("metadata", "namespace"),))
)
_IN_NONE = Field("metadata.namespace", NO_NAMESPACE, "metadata.namespace", Nothing())
_IN_SOME_OR_NONE = Field("metadata.namespace", NAMESPACE_OR_NONE, "metadata.namespace", _IN_NAMESPACE.value)


def _by_label(*fields: Field) -> Mapping[str, Field]:
    return MappingProxyType({field.label: field for field in fields})


# What every kind has, by whether it is namespaced.
_METADATA: Mapping[bool | None, Mapping[str, Field]] = MappingProxyType(
    {
        True: _by_label(_NAME, _IN_NAMESPACE),
        False: _by_label(_NAME, _IN_NONE),
        None: _by_label(_NAME, _IN_SOME_OR_NONE),
    }
)


def _built_in() -> Iterator[Kind]:
    for group, versions, kind, plural, shorts, namespaced, labels in KINDS:
        pairs = (text.partition(":") for text in labels.split())
        taken_for = {label: what if colon else label for label, colon, what in pairs}
        # Events of events.k8s.io are compared under names that only the core group accepts: the alias stands
        # for them.
        first = {what: label for label, what in taken_for.items()} | {label: label for label in taken_for}
        own = OWN_FIELDS.get((group, kind), {})
        fields = []
        for label, what in taken_for.items():
            if label in _METADATA[namespaced]:
                fields.append(_METADATA[namespaced][label])
            elif what:
                domain, value = own[first[what]]
                fields.append(Field(label, domain, first[what], value))
            else:
                fields.append(Field(label, ALWAYS_EMPTY, label, Nothing()))
        names = frozenset({kind, kind.lower(), plural, *shorts})
        yield Kind(group, kind, plural, namespaced, _by_label(*fields), versions, names)


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/")
_TYPES: Mapping[str, Domain] = MappingProxyType(
    {"boolean": BOOLEAN.or_empty(), "integer": INTEGER.or_empty()}
)
_TEXT = ANYTHING.or_empty()


def _is_plain(path: str) -> bool:
    """Return True if each step of the path is read by the server as the name that it is: not so with `*`,
    spaces, quotes, ...

    The server accepts such paths in a definition, and selects by something else. We leave them out.
    """
    first, *names = path.split(".")
    return not first and names != [] and all(name and _PLAIN.issuperset(name) for name in names)


def _selectable(path: str, schema: Mapping[str, Any]) -> Field:
    """Make the field of a custom resource, of the type that the schema has at its path."""
    label = path.removeprefix(".")
    keys = tuple(label.split("."))
    for key in keys:
        schema = as_mapping(as_mapping(schema.get("properties")).get(key, schema.get("additionalProperties")))
    # An enum is no reason to believe that there is nothing else: objects stored before it was written stay as
    # they are.
    domain = _TYPES.get(as_text(schema.get("type")), _TEXT)
    return Field(label, domain, label, Custom((keys,)))


BUILT_IN: tuple[Kind, ...] = tuple(_built_in())
"""Every kind of Kubernetes that can be listed and watched; those of the core group come first."""

_BY_NAME: dict[str, list[Kind]] = {}
for _kind in BUILT_IN:
    for _name in _kind.names:
        _BY_NAME.setdefault(_name, []).append(_kind)
