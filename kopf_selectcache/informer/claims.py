"""Claims: the resource of each declared key. Detects keys of the same resource, once the cluster has resolved
them.
"""

from __future__ import annotations

import logging

from kopf_selectcache._errors import ConflictingSelectors
from kopf_selectcache.client.discovery import Resolution
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.selectors.kind_keys import text_of


class Claims:
    """The declared keys of one operator by the resource that each was resolved to."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str, str], KindKey] = {}  # By group, plural and version.
        self._warned: set[frozenset[KindKey]] = set()

    def claim(self, key: KindKey, resource: Resource, *, line: str, logger: logging.Logger) -> None:
        """Note the resource of a key, which `line` declares; warn if another key has another version of it.

        Raise ConflictingSelectors if another key has the same version: one of the filters would never be
        used.
        """
        for claimed in [each for each, by in self._keys.items() if by == key]:
            del self._keys[claimed]  # The cluster served it in another version before.
        kind = resource.kind
        other = self._keys.setdefault((kind.group, kind.plural, resource.version), key)
        if other != key:
            what = f"{text_of(key)} and {text_of(other)} are both {resource}"
            raise ConflictingSelectors(what, remedy=f"Declare it once: remove {line}")
        for (group, plural, _), other in self._keys.items():
            if other == key or (group, plural) != (kind.group, kind.plural) or {key, other} in self._warned:
                continue
            self._warned.add(frozenset({key, other}))
            logger.warning(
                "%(other)s and %(key)s are two versions of the same resource, so its objects are cached"
                " twice."
                " Remove %(line)s.",
                {"other": text_of(other), "key": text_of(key), "line": line},
                extra={"resource": str(resource)},
            )

    def release(self, key: KindKey) -> None:
        """Forget a key that was removed."""
        self._keys = {claimed: by for claimed, by in self._keys.items() if by != key}
        self._warned = {pair for pair in self._warned if key not in pair}


def warn_provisional(key: str, found: Resolution, *, logger: logging.Logger) -> None:
    """Warn that the key may mean another resource."""
    logger.warning(
        "%(key)s is ambiguous while %(paths)s doesn't answer (%(code)s). For now, it means"
        " %(resource)s. Write the kind with its group.",
        {
            "key": key,
            "resource": str(found.resource),
            "paths": printable(", ".join(found.refused), 200),
            "code": next(iter(found.refused.values())).refusal.code,
        },
        extra={"resource": str(found.resource)},
    )
