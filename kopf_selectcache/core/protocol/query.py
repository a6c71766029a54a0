"""URL queries of the requests that the commands of the protocol machine stand for. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping

from .machine import Effect, List, Watch
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


def listing(command: List) -> dict[str, str]:
    """Return the parameters of a list: its page, and its version.

    >>> listing(List(not_older_than='100'))
    {'resourceVersion': '100', 'resourceVersionMatch': 'NotOlderThan'}
    """
    query = {"continue": command.token} if command.token else {}
    if command.not_older_than:
        query |= not_older_than(command.not_older_than)
    return query


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


def watching(command: Watch, *, bookmarks: bool = True) -> dict[str, str]:
    """Return the parameters of a watch: its version, and if it begins with the present objects. Such a
    beginning ends with a bookmark.

    >>> watching(Watch('100'))
    {'watch': 'true', 'allowWatchBookmarks': 'true', 'resourceVersion': '100'}
    >>> watching(Watch('100'), bookmarks=False)
    {'watch': 'true', 'resourceVersion': '100'}
    """
    query = {"watch": "true"} | ({"allowWatchBookmarks": "true"} if bookmarks or command.initial else {})
    if command.version:
        query["resourceVersion"] = command.version
    if command.initial:
        query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    return query


def asks_for_newest(effect: Effect) -> bool:
    """Return True if the effect asks for the newest state that the server has."""
    match effect:
        case List(not_older_than="", token=""):
            return True
        case Watch(version="", initial=True):
            return True
        case _:
            return False
