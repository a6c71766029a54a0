"""Leaves out the certificates of the system: each operator, and each process that imports aiohttp, would load
them, which takes 20 ms of CPU. The tests' own servers have authorities of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""By which OpenSSL and Go are told where they are."""
KEPT = "OF_THE_SYSTEM_"


def leave_out(environ: MutableMapping[str, str]) -> None:
    """Have OpenSSL find no certificates, in this process and in those that it starts."""
    for name in VARIABLES:
        if KEPT + name not in environ:  # A process of the tests that runs tests.
            environ[KEPT + name] = environ.get(name, "")
        environ[name] = os.devnull


def restored(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as it was, for who asks servers of others: Go downloads what it builds.

    >>> changed = {"SSL_CERT_FILE": "/etc/ca.crt"}
    >>> leave_out(changed)
    >>> restored(changed)
    {'SSL_CERT_FILE': '/etc/ca.crt'}
    """
    found = {name: value for name, value in environ.items() if not name.startswith(KEPT)}
    for name in VARIABLES:
        match environ.get(KEPT + name):
            case None:
                pass
            case "":
                del found[name]
            case before:
                found[name] = before
    return found
