"""The selector that was sent with a request, and the check of the answer against it: a server or a proxy may
ignore selectors.

Our table of fields (`core.selection.kinds`) reads field labels, and may be wrong where the server is right.
So a mismatch of a field alone proves nothing: the caller confirms it with the server, or drops the term
(`without`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kopf_selectcache.core.errors import Garbled

from .field_values import Extractor, Paths
from .grammar import FieldTerm, LabelRequirement
from .kinds import Kind

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Unselected(Garbled):
    """The server sent an object that the selector of the request does not select. The text names the object
    and the requirement, and no value except a label's.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        uid: str,
        version: str,
        requirement: LabelRequirement | FieldTerm,
        labels: Mapping[str, str],
    ) -> None:
        self.namespace, self.name, self.uid, self.version = namespace, name, uid, version
        self.term = requirement if isinstance(requirement, FieldTerm) else None
        """The failed term; None if a label failed, which needs no confirmation."""
        shown = f"{namespace[:63]}/{name[:253]}" if namespace else name[:253]
        why = ""
        if isinstance(requirement, LabelRequirement):
            value = labels.get(requirement.key)
            why = (
                f": it has no label {requirement.key}"
                if value is None
                else f": its label {requirement.key} is {value[:63]!r}"
            )
        super().__init__(f"the object {shown!r} came, which {requirement} does not select{why}")


@dataclass(frozen=True, slots=True)
class Sent:
    """The label requirements that were sent, and the field terms whose values our table can read.

    >>> from kopf_selectcache.core.selection.kinds import find
    >>> sent = Sent.of(find('pods'), (LabelRequirement('app', '=', ('web',)),), (FieldTerm('spec.nodeName', 'n1'), FieldTerm('spec.unknown', 'a')))
    >>> str(sent.failing_label({'app': 'db'})), sent.failing_label({'app': 'web'})
    ('app=web', None)
    >>> str(sent.failing_term({'spec': {'nodeName': 'n2'}})), sent.failing_term({'spec': {'nodeName': 'n1'}})
    ('spec.nodeName=n1', None)
    >>> sent.without('spec.nodeName').failing_term({'spec': {'nodeName': 'n2'}})
    """  # A line of an example is not broken.  # noqa: E501

    requirements: tuple[LabelRequirement, ...] = ()
    terms: tuple[tuple[FieldTerm, Extractor], ...] = ()

    @classmethod
    def of(cls, kind: Kind, requirements: Iterable[LabelRequirement], terms: Iterable[FieldTerm]) -> Sent:
        return cls(
            tuple(requirements),
            tuple((term, kind.fields[term.label].value) for term in terms if term.label in kind.fields),
        )

    def failing_label(self, labels: Mapping[str, str]) -> LabelRequirement | None:
        """Return a requirement that these labels do not satisfy; None if they satisfy all."""
        for each in self.requirements:
            if not each.matches(labels):
                return each
        return None

    def failing_term(self, obj: Mapping[str, Any], lost: Mapping[str, str] = _NOTHING) -> FieldTerm | None:
        """Return a term that the object does not satisfy. `lost` has the values of fields that a projection
        removed.
        """
        for term, value in self.terms:
            found = lost[term.label] if lost and term.label in lost else value(obj)
            if (found == term.value) is not term.equal:
                return term
        return None

    def failing_key(self, namespace: str, name: str) -> FieldTerm | None:
        """Return a term that an object with this key does not satisfy. Terms of other fields are not
        compared.
        """
        known = {"metadata.namespace": namespace, "metadata.name": name}
        return next((term for term, _ in self.terms if term.label in known and not term.matches(known)), None)

    def without(self, label: str) -> Sent:
        """Return the same without the terms of this field label."""
        return Sent(
            self.requirements, tuple((term, value) for term, value in self.terms if term.label != label)
        )

    def restricted(self, has_field: Callable[[Paths], bool]) -> Sent:
        """Return the same with those fields alone that can be read off the received objects, by the paths of
        each.
        """
        terms = tuple(pair for pair in self.terms if has_field(pair[1].paths))
        return self if len(terms) == len(self.terms) else Sent(self.requirements, terms)


EVERYTHING = Sent()
"""No selector: all objects."""
