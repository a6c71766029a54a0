"""Objects on the command line, named as for kubectl: `pod web-1`, `pod/web-1` or `pods/shop/web-1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.errors import BadText, Garbled
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.selectors.kind_keys import checked_key, likely

from .output import CommandError

DEFAULT = "default"
"""The namespace of an object that is named without one."""
EXAMPLES = "Write it as for kubectl: pod/web-1 -n shop, pod web-1, jobs.batch/run-1; or pods/shop/web-1"


class Target(NamedTuple):
    """One object, or all of a kind if it has no name."""

    resource: Resource
    namespace: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.resource}/{self.name}{f' in {self.namespace}' if self.namespace else ''}"

    def plain(self) -> dict[str, Any]:
        """Return the object as JSON has it."""
        return {"kind": str(self.resource), "namespace": self.namespace or None, "name": self.name}


async def targets_of(
    transport: KopfTransport, words: Sequence[str], namespace: str | None = None
) -> list[Target]:
    """Return the objects of the command line: `KIND NAME...`, or `KIND/NAME` and `KIND/NAMESPACE/NAME` each;
    `namespace` is that of `-n`. Raise CommandError.
    """
    found = list[Target]()
    for kind, own, name in parts_of(words):
        resource = await kind_named(transport, kind)
        is_namespaced = resource.kind.namespaced is not False
        if not is_namespaced and own is not None:
            raise CommandError(f"{resource} are cluster-scoped", f"Write {kind}/{name}")
        found.append(Target(resource, (own or namespace or DEFAULT) if is_namespaced else None, name))
        try:
            resource.path(found[-1].namespace, name)
        except BadText as error:
            raise CommandError(f"{name!r}: {error}") from error
    return found


def parts_of(words: Sequence[str]) -> list[tuple[str, str | None, str]]:
    """Return the kind, the namespace and the name of each object; raise CommandError.

    >>> parts_of(['example.com/v1/webapps', 'a']), parts_of(['po/a', 'cm/shop/b'])
    ([('example.com/v1/webapps', None, 'a')], [('po', None, 'a'), ('cm', 'shop', 'b')])
    """
    if len(words) > 1 and not all("/" in word for word in words):
        return [(words[0], None, name) for name in words[1:]]
    found = list[tuple[str, str | None, str]]()
    for word in words:
        match word.split("/"):
            case [kind, *own, name] if len(own) < 2 and all((kind, name, *own)):
                found.append((kind, own[0] if own else None, name))
            case _:
                raise CommandError(f"{word!r} is not an object", EXAMPLES)
    return found


async def kind_named(transport: KopfTransport, text: str) -> Resource:
    """Return the kind that a text of the command line names; raise CommandError."""
    try:
        return await resolve(transport, checked_key(text))
    except NotServed as error:
        meant = likely(text) if find(text) is None else None
        hint = f"Did you mean {meant}? " if meant else ""
        raise CommandError(str(error), f"{hint}To see all kinds: kubectl api-resources") from error
    except SelectCacheError as error:
        meant = likely(text)
        raise CommandError(
            f"{text!r} is not a kind", f"Did you mean {meant}?" if meant else EXAMPLES
        ) from error
    except Garbled as error:
        raise CommandError(str(error)) from error
