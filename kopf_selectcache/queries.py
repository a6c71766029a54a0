"""What a cache asks a server for, as the queries of its requests: the filter, and the command of the protocol. Asks nothing."""
from __future__ import annotations

from .core.protocol import List, Watch
from .selector import Selector
from .texts import FieldSelector


def selecting(selector: Selector) -> dict[str, str]:
    """Return a filter as a query; its namespace is a part of the path.

    >>> selecting(Selector('app=web', names=['web-1'], namespaces=['shop']))
    {'labelSelector': 'app=web', 'fieldSelector': 'metadata.name=web-1'}
    """
    query = {}
    if selector.label is not None and selector.requirements:
        query["labelSelector"] = str(selector.label)
    fields = [str(term) for term in selector.terms]
    if selector.names is not None:
        fields.append(str(FieldSelector.from_dict({"metadata.name": selector.names[0]})))
    if fields:
        query["fieldSelector"] = ",".join(fields)
    return query


def listing(command: List, limit: int) -> dict[str, str]:
    """Return what makes a list the one that is to come: which page, and how new.

    >>> listing(List(not_older_than='100'), 500)
    {'limit': '500', 'resourceVersion': '100', 'resourceVersionMatch': 'NotOlderThan'}
    """
    query = {} if command.whole else {"limit": str(limit)}
    if command.token:
        query["continue"] = command.token
    if command.not_older_than:
        query |= {"resourceVersion": command.not_older_than, "resourceVersionMatch": "NotOlderThan"}
    return query


def watching(command: Watch) -> dict[str, str]:
    """Return what makes a watch the one that is to come: since when, and whether with what there is.

    >>> watching(Watch('100'))
    {'watch': 'true', 'allowWatchBookmarks': 'true', 'resourceVersion': '100'}
    """
    query = {"watch": "true", "allowWatchBookmarks": "true"}
    if command.version:
        query["resourceVersion"] = command.version
    if command.initial:
        query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    return query
