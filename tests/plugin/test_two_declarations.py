"""Several startup handlers that declare one kind: an error if they differ, an OR if they add."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import kopf
import pytest

from kopf_selectcache import Selector, _kopf
from kopf_selectcache.__main__ import main
from kopf_selectcache.errors import ConflictingSelectors
from kopf_selectcache.settings.declaration import Cached, Selectors
from kopf_selectcache.settings.options import settings_of
from tests.kopf_operators import activity, called, context, run

Declaring = Callable[[Selectors], object]


def module(name: str, *lines: str, folder: Path = Path("/app")) -> Declaring:
    """Return a function that runs these lines as those of a file of this name, with the selectors."""
    code = compile("\n".join(lines), str(folder / f"{name}.py"), "exec")
    return lambda select: exec(code, {"select": select, "Cached": Cached})  # Its file has a name.  # noqa: S102


def started(*functions: Declaring, settings: kopf.OperatorSettings | None = None) -> Selectors:
    """Call each function in a startup handler of its own, as Kopf calls them, and return what they have
    declared. The same function is the same handler.
    """
    registry, settings = kopf.OperatorRegistry(), settings or kopf.OperatorSettings()
    for function in dict.fromkeys(functions):

        def configure(settings: kopf.OperatorSettings, function: Declaring = function, **_: Any) -> None:
            function(settings_of(settings).selectors)

        kopf.on.startup(registry=registry)(configure)
    handlers = dict(zip(dict.fromkeys(functions), _kopf.activity_handlers(registry), strict=True))

    async def call() -> None:
        with context(settings):
            for function in functions:
                await called(handlers[function], activity(_kopf.Activity.STARTUP, settings))

    run(call())
    return settings_of(settings).selectors


WEB = module("web", "select['pods'] = 'app=web'")
DB = module("db", "", "select['pods'] = 'app=db'")


@pytest.mark.parametrize("order", [(WEB, DB), (DB, WEB)], ids=["web, db", "db, web"])
def test_20_two_handlers_that_declare_a_kind_differently_are_an_error_with_both_places(order: Any) -> None:
    with pytest.raises(ConflictingSelectors) as caught:
        started(*order)
    assert "labels='app=web' at web.py:1" in str(caught.value)
    assert "labels='app=db' at db.py:2" in str(caught.value)


def test_20_two_files_of_one_name_are_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    web = module("web", "select['pods'] = 'app=web'", folder=tmp_path / "shop")
    db = module("web", "select['pods'] = 'app=db'", folder=tmp_path / "blog")
    with pytest.raises(ConflictingSelectors) as caught:
        started(web, db)
    assert "labels='app=web' at shop/web.py:1 and with labels='app=db' at blog/web.py:1" in str(caught.value)


def test_20_other_options_are_a_difference() -> None:
    keeping = module("keeping", "select['pods'] = Cached('app=web', keep=['spec'])")
    with pytest.raises(ConflictingSelectors) as caught:
        started(WEB, keeping)
    assert "web.py:1" in str(caught.value)
    assert "keeping.py:1" in str(caught.value)


def test_20_an_option_that_is_given_its_default_is_a_difference() -> None:
    with pytest.raises(ConflictingSelectors):
        started(WEB, module("whole", "select['pods'] = Cached('app=web', drop=[])"))


def test_20_a_handler_may_declare_a_kind_again_and_so_may_its_retry() -> None:
    names = iter(["c", "d"])

    def loop(select: Selectors) -> None:
        for name in ("a", "b", next(names)):
            select["pods"] = f"app={name}"

    settings = kopf.OperatorSettings()
    with suppress(ConflictingSelectors):
        started(loop, loop, settings=settings)
    assert settings_of(settings).selectors["pods"] == Selector("app=d")


def test_20_settings_before_the_operator_starts_are_one_place() -> None:
    settings = kopf.OperatorSettings()
    for app in ("web", "web2"):
        module("main", f"select['pods'] = 'app={app}'")(settings_of(settings).selectors)
    assert settings_of(settings).selectors["pods"] == Selector("app=web2")
    with pytest.raises(ConflictingSelectors, match=r"labels='app=web2' at main\.py:1"):
        started(DB, settings=settings)


def test_20_a_handler_may_remove_the_declaration_of_another() -> None:
    removing = module("removing", "del select['pods']")
    assert started(WEB, removing, DB)["pods"] == Selector("app=db")


def test_20_two_names_of_a_kind_are_an_error_with_both_places() -> None:
    with pytest.raises(ConflictingSelectors) as caught:
        started(WEB, module("named", "select['v1/pods'] = 'app=web'"))
    assert "web.py:1" in str(caught.value)
    assert "named.py:1" in str(caught.value)


MORE = module("more", "select.add('pods', 'app=more')")
AGAIN = module("again", "select.add('pods', 'app=more')", "select.add('pods', 'app=web')")


@pytest.mark.parametrize("order", [*itertools.permutations([WEB, MORE, AGAIN])])
def test_20_additions_are_an_or_in_any_order(order: Any) -> None:
    branches = started(*order, order[0])["pods"].branches
    assert len(branches) == 2
    assert {*branches} == {Selector("app=web"), Selector("app=more")}


def test_20_a_kind_may_be_added_without_an_assignment() -> None:
    assert started(MORE)["pods"] == Selector("app=more")


@pytest.mark.parametrize("is_first", [True, False])
def test_20_the_options_of_one_side_are_those_of_the_kind(is_first: bool) -> None:
    keeping = module("keeping", "select.add('pods', Cached('app=web', max_bytes='1Mi'))")
    order = (keeping, MORE) if is_first else (MORE, keeping)
    cached = started(*order, keeping).cached("pods")
    assert cached.max_bytes == "1Mi"
    assert {*cached.filter.branches} == {Selector("app=web"), Selector("app=more")}


def test_20_different_options_of_two_sides_are_an_error_with_both_places() -> None:
    sides = [module(f"m{n}", f"select.add('pods', Cached('app=m{n}', max_bytes='{n}Mi'))") for n in (1, 2)]
    with pytest.raises(ConflictingSelectors, match=r"m1\.py:1.*m2\.py:1"):
        started(*sides)


def test_20_namespaces_beside_the_filter_confine_nothing_that_another_adds() -> None:
    confined = module("confined", "select['pods'] = Cached('app=web', namespaces={'shop': 'tier=gold'})")
    with pytest.raises(ConflictingSelectors, match=r"confined\.py:1 and more\.py:1"):
        started(confined, MORE)


FILE = """
import kopf
import kopf_selectcache

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/pods'] = 'app={name}'
"""


@pytest.mark.parametrize("order", [("web", "db"), ("db", "web")])
@pytest.mark.usefixtures("cluster", "default_registry")
def test_20_check_reports_two_files_that_declare_a_kind_in_any_order(
    order: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in order:
        (tmp_path / f"{name}.py").write_text(dedent(FILE.format(name=name)))
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main(["check", *(str(tmp_path / f"{name}.py") for name in order)]) == 1
    said = capsys.readouterr().err
    assert "labels='app=web' at web.py:7" in said
    assert "labels='app=db' at db.py:7" in said
