"""Which resource of the cluster is meant: a kind as one of its versions serves it, and where its objects are
found.
"""

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
    """True if the kind's field labels are all there are. Not so for a custom resource whose definition may
    not be read."""

    def __str__(self) -> str:
        return f"{self.kind.plural}.{self.kind.group}" if self.kind.group else self.kind.plural

    @property
    def domains(self) -> Kind | None:
        """The kind for verdicts: none, so that fields are free strings, where its field labels are not
        known.
        """
        return self.kind if self.fields_known else None

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the path of a URL: of all objects, those of a namespace, or one object.

        Names often come from the objects of others: one must not lead to another object, a subresource, or
        all of them.
        """
        parts = ["/apis" if self.kind.group else "/api", self.api_version]
        if namespace:
            parts += ["namespaces", _segment(namespace)]
        parts += [self.kind.plural, *([_segment(name)] if name is not None else [])]
        return "/".join(parts)


def _segment(name: str) -> str:
    # What Kubernetes refuses in names of every kind. An encoded slash would not do: the server decodes it,
    # then splits.
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise BadText("no object can have this name", text=name, column=1)
    return quote(name, safe="")
