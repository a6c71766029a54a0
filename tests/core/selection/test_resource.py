"""A kind as one version serves it: what it is called, and where its objects are. No name leads anywhere
else."""

from __future__ import annotations

import pytest

from kopf_selectcache.core.errors import BadText
from kopf_selectcache.core.selection.kinds import Resource, find
from tests.rows import each_row


@each_row("name", ["", ".", "..", "web-1/log", "../../bank/secrets/x", "%2e%2e", "a%2Fb"])
def test_a_name_leads_to_no_other_object(name: str) -> None:
    pods = find("pods")
    assert pods is not None
    with pytest.raises(BadText, match="no object can have this name"):
        Resource(pods, "v1").path("shop", name)
    if name:
        with pytest.raises(BadText):
            Resource(pods, "v1").path(name)
