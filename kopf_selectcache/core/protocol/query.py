"""URL parameters of the versions of lists, and what servers say that have not reached one. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping

from .messages import Refusal

_BEYOND = ("Too large resource version", "required revision is a future revision")
"""Messages of servers that have not reached the version of a list. Up to Kubernetes 1.33, a list at an exact
version gets the second, which is etcd's, with the code 500. Watches of such a version are accepted and
silent."""


def written(path: str, query: Mapping[str, str]) -> str:
    """Return a request as people read it.

    >>> written('/api/v1/pods', {'labelSelector': 'app=web'}), written('/api/v1/pods', {})
    ('/api/v1/pods?labelSelector=app=web', '/api/v1/pods')
    """
    return path + ("?" if query else "") + "&".join(f"{key}={value}" for key, value in query.items())


def exactly(version: str) -> dict[str, str]:
    """Return the parameters of a list at exactly this version.

    >>> exactly('100')
    {'resourceVersion': '100', 'resourceVersionMatch': 'Exact'}
    """
    return {"resourceVersion": version, "resourceVersionMatch": "Exact"}


def is_beyond_server(refusal: Refusal) -> bool:
    """Return True if a list is refused because the server has not reached the requested version.

    >>> is_beyond_server(Refusal(504, message='Timeout: Too large resource version: 9, current: 5'))
    True
    >>> is_beyond_server(Refusal(500, message='etcdserver: mvcc: required revision is a future revision'))
    True
    >>> is_beyond_server(Refusal(500, message='etcdserver: leader changed'))
    False
    """
    return any(words in refusal.message for words in _BEYOND)


def not_older_than(version: str) -> dict[str, str]:
    """Return the parameters of a list at this version, or a newer one.

    >>> not_older_than('100')
    {'resourceVersion': '100', 'resourceVersionMatch': 'NotOlderThan'}
    """
    return {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
