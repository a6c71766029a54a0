"""An embedded Kubernetes API server for tests, with faults. It needs no cluster and no network, but the extra
`testing`.

Example:
    >>> from kopf_selectcache.testing import EmbeddedCluster
    >>> with EmbeddedCluster().in_thread() as cluster:
    ...     made, = cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}})
    >>> made["metadata"]["namespace"]
    'default'

"""  # The example has a long line.  # noqa: E501

from .api.status import Problem
from .cluster import EmbeddedCluster
from .fake import FakeCache
from .faults import End, Fault, Faults, Planned
from .manifests import ManifestError
from .request_log import Asked, OperatorEnded, Requests

__all__ = [
    "Asked",
    "EmbeddedCluster",
    "End",
    "FakeCache",
    "Fault",
    "Faults",
    "ManifestError",
    "OperatorEnded",
    "Planned",
    "Problem",
    "Requests",
]
