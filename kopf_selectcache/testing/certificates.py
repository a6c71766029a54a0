"""A temporary authority for TLS: kubectl sends no token over plain HTTP. Its key is never
written to a file.
"""

from __future__ import annotations

import ssl
from pathlib import Path

HOSTS = ("127.0.0.1", "localhost", "::1", "kubernetes.default.svc")


def authority(ca_file: Path) -> ssl.SSLContext:
    """Make a new authority, write its certificate (no key), and return the context of a server that it
    trusts.
    """
    try:
        import trustme  # It is in an extra; everything without TLS works without it.  # noqa: PLC0415
    except ImportError:
        raise ImportError(
            "a cluster with TLS needs trustme: pip install '.[testing]' in a clone of kopf_selectcache"
        ) from None
    ca = trustme.CA()
    ca.cert_pem.write_to_path(ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*HOSTS).configure_cert(context)
    return context
