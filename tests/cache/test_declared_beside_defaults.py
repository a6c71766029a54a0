"""The declaration of a kind beside the defaults."""

from __future__ import annotations

import kopf
import pytest

from kopf_selectcache import UNSET, AnyOf, Cached, DeclarationError, Selector, settings_of
from kopf_selectcache.testing import FakeCache

from .test_declaring import CONFIGS, WEBAPPS


def test_declared_namespaces_stay_as_they_are() -> None:
    settings = kopf.OperatorSettings()
    ours = settings_of(settings)
    ours.defaults.namespaces = ["elsewhere"]
    ours.defaults.labels = "app=db"
    ours.selectors["v1/configmaps"] = Cached(
        "app=web", namespaces={"shop": UNSET, "blog": Selector(names=["a"])}
    )
    cache = FakeCache(CONFIGS, settings)
    cache.blocking.declare("configmaps", "app in (web,db)", keep=["data"], replace=True)
    changed = AnyOf(
        [
            Selector("app in (web,db)", names=["a"], namespaces=["blog"]),
            Selector("app in (web,db)", namespaces=["shop"]),
        ]
    )
    assert cache.info("configmaps").filter == changed
    cache.blocking.declare("configmaps", Selector(), replace=True)
    assert str(cache.info("configmaps").filter.branches[1]) == "labels='app=db', namespaces=['shop']"
    cache.blocking.declare("configmaps", [Selector("app=web", namespaces=["other"]), "app=db"], replace=True)
    assert Selector("app=web", namespaces=["other"]) in cache.info("configmaps").filter.branches
    assert Selector("app=db", namespaces=["shop"]) in cache.info("configmaps").filter.branches
    cache.blocking.declare("configmaps", "app=web", namespaces=UNSET, replace=True)
    assert cache.info("configmaps").filter == Selector("app=web", namespaces=["elsewhere"])
    cache.blocking.declare("configmaps", Cached("app=web", namespaces=["elsewhere"]), replace=True)
    cache.blocking.declare("configmaps", "app=db", replace=True)
    assert [str(each) for each in cache.info("configmaps").origins if each.option == "namespaces"] == [
        "namespaces=['elsewhere']: from the kind"
    ]


def test_a_default_that_stays_has_its_origin() -> None:
    settings = kopf.OperatorSettings()
    ours = settings_of(settings)
    ours.defaults.max_bytes = "1Mi"
    ours.selectors["v1/configmaps"] = Cached("app=web", storage="raw")
    cache = FakeCache(CONFIGS, settings)
    cache.blocking.declare("configmaps", "app=db", replace=True)
    origins = [str(each) for each in cache.info("configmaps").origins]
    assert "max_bytes='1Mi': from the defaults" in origins
    assert "storage='raw': from the kind" in origins


def test_a_declaration_with_the_defaults_is_the_same_again() -> None:
    settings = kopf.OperatorSettings()
    settings_of(settings).defaults.namespaces = ["shop"]
    cache = FakeCache([WEBAPPS], settings)
    cache.blocking.declare("example.com/v1/webapps", "app=web")
    cache.blocking.declare("example.com/v1/webapps", "app in (web)")
    with pytest.raises(DeclarationError) as caught:
        cache.blocking.declare("example.com/v1/webapps", Selector("app=web", namespaces=["shop"]))
    assert "unconfined" not in str(caught.value)
