"""What several tests of operators need."""

import kopf
import pytest

from kopf_selectcache import _kopf
from tests.plugin.virtual import Times


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    """The handlers of an operator: none yet."""
    return kopf.OperatorRegistry()


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    """The times that Kopf's timestamps have in the test."""
    return Times(monkeypatch)


@pytest.fixture
def default_registry(monkeypatch: pytest.MonkeyPatch) -> kopf.OperatorRegistry:
    """The registry that operators' files are loaded into: none of its handlers is of another test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", "of the cluster")  # A registry chooses its login when it is made.
        made = _kopf.SmartOperatorRegistry()
    monkeypatch.setattr("kopf._core.intents.registries._default_registry", made)
    return made
