"""Objects on the command line, named as for kubectl: `pod web-1`, `pod/web-1` or `pods/shop/web-1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.selection.kinds import find
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.selectors.kind_keys import checked_key, likely

from .output import CommandError

DEFAULT = "default"
"""The namespace of an object that is named without one."""
EXAMPLES = "Write it as for kubectl: pod/web-1 -n shop, pod web-1, jobs.batch/run-1; or pods/shop/web-1"


class Named(NamedTuple):
    """One object of the command line."""

    kind: str
    namespace: str | None
    name: str


def named_by(words: Sequence[str]) -> list[Named]:
    """Return the objects: `KIND NAME...`, or `KIND/NAME` and `KIND/NAMESPACE/NAME` each; raise CommandError.

    >>> named_by(['example.com/v1/webapps', 'a']), named_by(['po/a', 'cm/shop/b'])
    ([Named(kind='example.com/v1/webapps', namespace=None, name='a')], [Named(kind='po', namespace=None, name='a'), Named(kind='cm', namespace='shop', name='b')])
    """  # A line of an example is not broken.  # noqa: E501
    if len(words) > 1 and not all("/" in word for word in words):
        return [Named(words[0], None, name) for name in words[1:]]
    return [_named_by(word) for word in words]


def _named_by(word: str) -> Named:
    match word.split("/"):
        case [kind, name] if kind and name:
            return Named(kind, None, name)
        case [kind, namespace, name] if kind and namespace and name:
            return Named(kind, namespace, name)
    raise CommandError(f"{word!r} is not an object", EXAMPLES)


async def kind_named(transport: KopfTransport, text: str) -> Resource:
    """Return the kind that a text of the command line names; raise CommandError."""
    try:
        return await resolve(transport, checked_key(text))
    except NotServed as error:
        meant = likely(text) if find(text) is None else None
        hint = f"Did you mean {meant}? Otherwise look at: kubectl api-resources" if meant else ""
        raise CommandError(str(error), hint or "To see what it serves: kubectl api-resources") from error
    except SelectCacheError as error:
        meant = likely(text)
        raise CommandError(
            f"{text!r} is not a kind", f"Did you mean {meant}?" if meant else EXAMPLES
        ) from error
    except Garbled as error:
        raise CommandError(str(error)) from error


def place_of(named: Named, resource: Resource, namespace: str | None) -> str | None:
    """Return the namespace of an object, which may be that of `-n`; None for cluster-scoped kinds."""
    if resource.kind.namespaced is not False:
        return named.namespace or namespace or DEFAULT
    if named.namespace is not None:
        raise CommandError(f"{resource} are cluster-scoped", f"Write {named.kind}/{named.name}")
    return None
