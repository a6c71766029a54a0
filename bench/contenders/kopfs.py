"""The common parts of the two operators under Kopf: their login, and Kopf's own delays, made shorter."""

from __future__ import annotations

from typing import Any

import kopf

IDLE = 3.0
"""The seconds of silence after which a watch counts as dead: 70 by default. Here a bookmark comes each
second.
"""


@kopf.on.login()
def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Read the kubeconfig, and read it again when the server refuses it."""
    return kopf.login_with_kubeconfig(**kwargs)


def hasten(settings: kopf.OperatorSettings) -> None:
    settings.watching.inactivity_timeout = IDLE
    settings.networking.error_backoffs = [second / 10 for second in (1, 1, 2, 3, 5, 8, 13, 21)]
