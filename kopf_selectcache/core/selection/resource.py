"""A resource of the cluster: a kind in one of its versions, with the paths of its objects."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from kopf_selectcache.core.errors import BadText

from .kinds import Kind


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind and the version in which it is read.

    >>> from kopf_selectcache.core.selection.kinds import find
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
