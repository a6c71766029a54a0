"""`check` and calls that nobody awaits."""

from __future__ import annotations

import ast
import re

import pytest

from kopf_selectcache.cli._code import unawaited_in
from tests.cli.conftest import Command

PATCH = "cache.live.patch('pods', 'a', {}, namespace='b')"
LOST = {
    "a line of its own": f"async def f(cache):\n  {PATCH}",
    "a condition": f"async def f(cache):\n  if {PATCH}: pass",
    "a part of a condition": f"async def f(cache):\n  x = {PATCH} or 5",
    "a negation": f"async def f(cache):\n  return not {PATCH}",
    "a comparison": f"async def f(cache):\n  return {PATCH} is None",
    "a name that nothing reads": f"async def f(cache):\n  made = {PATCH}",
    "a function in a sync one": f"def g(cache):\n  async def f():\n    {PATCH}",
}
CALLS = {
    "cache.fetch('pods', 'a', namespace='b')": "cache.fetch",
    "cache.declare('pods', 'app=web')": "cache.declare",
    PATCH: "cache.live.patch",
    "cache.live.create(obj)": "cache.live.create",
    "current().wait_for('pods', ready)": "current().wait_for",
    "selectcache.current().live.delete('pods', 'a', namespace='b')": "selectcache.current().live.delete",
    "selectcache.current(selectcache.Cache).audit('pods')": "selectcache.current(selectcache.Cache).audit",
    "cache_of(settings).live.get('pods', 'a', namespace='b')": "cache_of(settings).live.get",
}
"""Calls that must be awaited, and the method as it is written."""

FOUND = {
    "awaited": f"async def f(cache):\n  await {PATCH}",
    "awaited condition": f"async def f(cache):\n  if await {PATCH}: pass",
    "a task": f"async def f(cache):\n  asyncio.create_task({PATCH})",
    "gathered": f"async def f(cache):\n  await asyncio.gather({PATCH}, *[{PATCH}])",
    "awaited later": f"async def f(cache):\n  made = {PATCH}\n  await made",
    "returned": f"async def f(cache):\n  return {PATCH}",
    "of a thread": f"async def f(cache):\n  {PATCH.replace('cache.', 'cache.blocking.')}",
    "of a thread, elsewhere": "async def f():\n  current().blocking.fetch('pods', 'a', namespace='b')",
    "of another object's current()": "async def f():\n  loop.current().audit('pods')",
    "a sync function, which needs no await": f"def f(cache):\n  {PATCH}",
    "a sync function in an async one": f"async def f(cache):\n  def g():\n    {PATCH}",
    "a read that nobody awaits": "async def f(cache):\n  cache.list_cached('pods')",
    "of another object": f"async def f(store):\n  {PATCH.replace('cache', 'store')}",
}


@pytest.mark.parametrize("title", LOST)
def test_20_a_call_that_nobody_awaits_is_found(title: str) -> None:
    line = next(number for number, text in enumerate(LOST[title].split("\n"), 1) if PATCH in text)
    assert list(unawaited_in(ast.parse(LOST[title]), "web.py")) == [
        ("cache.live.patch", f"web.py, line {line}")
    ]


@pytest.mark.parametrize("call", CALLS)
def test_20_a_call_is_found_and_named_as_it_is_written(call: str) -> None:
    tree = ast.parse(f"async def f(cache, obj, ready, settings):\n  {call}")
    assert list(unawaited_in(tree, "web.py")) == [(CALLS[call], "web.py, line 2")]


@pytest.mark.parametrize("title", FOUND)
def test_20_other_calls_are_no_problem(title: str) -> None:
    assert not list(unawaited_in(ast.parse(FOUND[title]), "web.py"))


@pytest.mark.usefixtures("busy")
def test_20_check_names_each_call_that_nobody_awaits(command: Command) -> None:
    handlers = """
async def f(cache):
    cache.wait_deleted('pods', 'a', namespace='b')
    selectcache.current().live.delete('pods', 'a', namespace='b')
"""
    said = command("check", "select['v1/pods'] = 'app=web'", handlers=handlers)
    assert said.code == 1
    (first, line), (second, next_line) = re.findall(r"! (\S+)\(\) in web.py, line (\d+) is not", said.output)
    assert (first, second) == ("cache.wait_deleted", "selectcache.current().live.delete")
    assert int(next_line) == int(line) + 1
