"""An operator without a cache, for the memory of its process: `kopf run bench/peers/empty_alone.py`."""

from __future__ import annotations

import json
from typing import Any

import kopf


@kopf.on.login()
def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**kwargs)


@kopf.on.event("configmaps", labels={"bench": "ask"})
async def ready(**_: Any) -> None:
    print(json.dumps({"ready": True}), flush=True)
