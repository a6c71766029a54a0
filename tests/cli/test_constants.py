"""The names that `rbac` and `check` follow in an operator's source, and those that they do not."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from kopf_selectcache.cli._code import fetches_in
from kopf_selectcache.cli._constants import Names, Program, SourceFile
from tests.cli.conftest import Command
from tests.cli.test_rbac import rules

EXAMPLES = Path(__file__).parents[2] / "examples"


def keys_in(code: str, **others: str) -> set[object]:
    """Return the kinds of the calls of `cache` in a file that may import these others."""
    parsed = {name: SourceFile(ast.parse(textwrap.dedent(text)), [name]) for name, text in others.items()}
    source = SourceFile(ast.parse(textwrap.dedent(code)), ["shop.web"])
    names = Names(source, Program([source, *parsed.values()]))
    return {fetch.key for fetch in fetches_in(source.tree, "web.py", names) if not fetch.settles}


FOLLOWED = {
    "a constant of the module": """
        KIND = 'secrets'
        async def f(cache): await cache.live.delete(KIND, 'a', namespace='b')
    """,
    "a constant with a type": "KIND: Final = 'secrets'\ndef f(cache): cache.blocking.fetch(KIND, key)",
    "a text of constants": """
        V, KIND = 'v', 1
        G = 'core'
        N = 'sec'
        def f(cache): cache.fetch(f'{N}' + 'rets', 'a')
    """,
    "a constant twice, with one value": """
        try:
            KIND = 'secrets'
        except ImportError:
            KIND = 'sec' + 'rets'
        def f(cache): cache.fetch(KIND, 'a')
    """,
    "a local variable": """
        KIND = 'pods'
        def f(cache):
            KIND = 'secrets'
            return cache.fetch(KIND, 'a')
    """,
    "a variable of the function around": """
        def f(cache):
            kind = 'secrets'
            async def inner(): await cache.live.patch(kind, 'a', {}, namespace='b')
    """,
    "an attribute of a class": """
        class Names:
            KIND = 'secrets'
        def f(cache): cache.fetch(Names.KIND, 'a')
    """,
    "an attribute of the own class": """
        class Handlers(object):
            KIND = 'secrets'
            async def f(self, cache):
                await cache.live.delete(self.KIND, 'a', namespace='b')
    """,
}


@pytest.mark.parametrize("title", FOLLOWED)
def test_a_name_of_a_constant_is_followed(title: str) -> None:
    assert keys_in(FOLLOWED[title]) == {"secrets"}


SECRET = "{'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': f'{name}-copy'}}"
MADE = {
    "a function": f"def make(name): return {SECRET}\ndef f(cache, name): cache.live.create(make(name))",
    "a function that returns in two places": f"""
        def make(name):
            if not name:
                return None
            if name == 'a':
                return {SECRET}
            return {{**BASE, 'metadata': {{}}}}
        BASE = {{'apiVersion': 'v1', 'kind': 'Secret'}}
        def f(cache, name): cache.live.create(make(name))
    """,
    "a function that builds it in steps": """
        def make(name, data):
            body = {'apiVersion': 'v1', 'metadata': {'name': name}}
            body['kind'] = KIND
            body['metadata']['labels'] = {'kind': 'x'}
            body['data'] = data
            body.setdefault('type', 'Opaque')
            body.update({'immutable': True}, stringData={})
            body.pop('immutable')
            kopf.adopt(body)
            return body
        KIND = 'Secret'
        async def f(cache, name): await cache.live.apply(make(name, {}))
    """,
    "an async function": f"""
        async def make(cache, name):
            def inner(): return 5
            return {SECRET}
        async def f(cache, name): await cache.live.ensure(await make(cache, name), adopt=False)
    """,
    "a method": f"""
        class Copier:
            @staticmethod
            def _copy(name): return {SECRET}
            def f(self, cache, name): cache.live.replace(self._copy(name))
    """,
    "a variable that is None at first": f"""
        def f(cache, name):
            obj = None
            if name:
                obj = {SECRET}
            if (same := obj):
                cache.live.create(obj)
                cache.live.create(same)
    """,
}


@pytest.mark.parametrize("title", MADE)
def test_an_object_is_followed_to_where_it_is_written_out(title: str) -> None:
    assert keys_in(MADE[title]) == {"v1/Secret"}


MADE |= {
    "an argument of all calls": f"""
        async def reconcile(cache, copies, name):
            found = {{copy['name']: copy for copy in copies}}
            content = await content_of(cache)
            copy = {{'apiVersion': 'v1', 'kind': 'Secret', **content}}
            await write(cache, copy, found)
            await write(cache, found=None, obj={SECRET})
        async def content_of(cache):
            source = await others()
            return source and {{'data': source[0]['data']}}
        async def write(cache, obj, found):
            if any((last := each) for each in found):
                file.write(last)
            await cache.live.create(obj)
    """,
    "a function of a kind": "def make(kind): return {'apiVersion': 'v1', 'kind': kind}\n"
    "def f(cache): cache.live.create(make('Secret'))",
}
NOT_FOLLOWED = {
    "an argument of calls with several kinds": """
        def make(kind): return {'apiVersion': 'v1', 'kind': kind}
        def f(cache): cache.live.create(make('Pod'))
        def g(): return make('Secret')
    """,
    "an argument of a function that is handed on": """
        def delete(cache, kind): cache.live.delete(kind, 'a', namespace='b')
        def f(cache): delete(cache, 'pods'); later(delete)
    """,
    "an argument of a call with unknown ones": """
        def delete(cache, kind): cache.live.delete(kind, 'a', namespace='b')
        def f(cache, args): delete(cache, 'pods'); delete(*args); delete(**args)
    """,
    "an argument that a call leaves out": """
        def delete(cache, kind='secrets'): cache.live.delete(kind, 'a', namespace='b')
        def f(cache): delete(cache, 'secrets'); delete(cache)
    """,
    "all arguments": """
        def delete(cache, *kinds): cache.live.delete(kinds, 'a', namespace='b')
        def f(cache): delete(cache, 'pods')
    """,
    "an argument of a handler": """
        @kopf.on.event('pods')
        def delete(cache, kind): cache.live.delete(kind, 'a', namespace='b')
        def f(cache): delete(cache, 'pods')
    """,
    "an argument of a method": """
        class Handlers:
            def delete(self, cache, kind): cache.live.delete(kind, 'a', namespace='b')
            def f(self, cache): self.delete(cache, 'pods')
    """,
    "an argument of a function under another name": """
        from shop.web import delete as remove
        def delete(cache, kind): cache.live.delete(kind, 'a', namespace='b')
        def f(cache): delete(cache, 'pods')
    """,
    "an argument of a function that calls itself with it": """
        def delete(cache, kind): cache.live.delete(kind, 'a', namespace='b'); delete(cache, kind)
        def f(cache): delete(cache, 'pods')
    """,
    "a name with two values": "KIND = 'secrets'\nKIND = 'pods'\ndef f(cache): cache.fetch(KIND, 'a')",
    "a name that is changed": "KIND = 'sec'\nKIND += 'rets'\ndef f(cache): cache.fetch(KIND, 'a')",
    "a call": "KIND = os.environ['KIND']\ndef f(cache): cache.fetch(KIND, 'a')",
    "an argument": "KIND = 'secrets'\ndef f(cache, KIND): cache.fetch(KIND, 'a')",
    "a default": "def f(cache, kind='secrets'): cache.fetch(kind, 'a')",
    "a variable of a loop": "def f(cache):\n    for KIND in KINDS:\n        cache.fetch(KIND, 'a')",
    "a part of a tuple": "KIND, OTHER = kinds()\ndef f(cache): cache.fetch(KIND, 'a')",
    "a name that a function changes": """
        KIND = 'secrets'
        def change():
            global KIND
            KIND = 'pods'
        def f(cache): cache.fetch(KIND, 'a')
    """,
    "a name that may come from elsewhere": """
        from names import *
        KIND = 'secrets'
        def f(cache): cache.fetch(KIND, 'a')
    """,
    "a name of itself": "KIND = KIND\ndef f(cache): cache.fetch(KIND, 'a')",
    "a name that there is not": "def f(cache): cache.fetch(KIND, 'a')",
    "a format": "V = 1.0\ndef f(cache): cache.fetch(f'pods{V:.1f}', 'a'); cache.fetch('a' * 2, 'a')",
    "an attribute that is assigned": """
        class Names:
            KIND = 'secrets'
        Names.KIND = kind()
        def f(cache): cache.fetch(Names.KIND, 'a')
    """,
    "an attribute that is set": """
        class Names:
            KIND = 'secrets'
        setattr(Names, 'KIND', kind())
        def f(cache): cache.fetch(Names.KIND, 'a')
    """,
    "an attribute of a class with an unknown base": """
        class Names(enum.Enum):
            KIND = 'secrets'
        def f(cache): cache.fetch(Names.KIND, 'a')
    """,
    "an attribute that a subclass has as well": """
        class Base:
            KIND = 'secrets'
            def f(self, cache): cache.fetch(self.KIND, 'a')
        class Other(Base):
            KIND = 'pods'
    """,
    "an attribute of a decorated class": """
        @dataclass
        class Names:
            KIND: str = 'secrets'
        def f(cache): cache.fetch(Names.KIND, 'a')
    """,
    "a name of a class in a method": """
        class Handlers:
            KIND = 'secrets'
            def f(self, cache): cache.fetch(KIND, 'a')
    """,
    "an object that is unpacked last": f"def f(cache, name, rest): cache.live.create({{**{SECRET}, **rest}})",
    "an object with an unknown key": f"def f(cache, name, key): cache.live.create({{**{SECRET}, key: 5}})",
    "an object of two kinds": f"""
        def make(name):
            if name: return {SECRET}
            return {{'apiVersion': 'v1', 'kind': 'Pod'}}
        def f(cache, name): cache.live.create(make(name))
    """,
    "an object whose kind is changed": f"""
        def f(cache, name):
            obj = {SECRET}
            obj['kind'] = 'Pod'
            cache.live.create(obj)
    """,
    "an object that is changed in unknown ways": f"""
        def f(cache, name, rest):
            obj = {SECRET}
            obj.update(rest)
            cache.live.create(obj)
    """,
    "an object that is changed by an unknown key": f"""
        def f(cache, name, key):
            obj = {SECRET}
            obj[key] = 1
            cache.live.create(obj)
    """,
    "an object that is changed in place of its name": f"""
        def f(cache, name):
            obj = {SECRET}
            obj |= x
            cache.live.create(obj)
    """,
    "an object whose kind is removed": f"""
        def f(cache, name):
            obj = {SECRET}
            del obj['kind']
            cache.live.create(obj)
    """,
    "an object that is emptied": f"""
        def f(cache, name):
            obj = {SECRET}
            obj.clear()
            cache.live.create(obj)
    """,
    "a function that is decorated": f"""
        @other
        def make(name): return {SECRET}
        def f(cache): cache.live.create(make(1))
    """,
    "a function that calls itself": "def make(): return make()\ndef f(cache): cache.live.create(make())",
    "a function that yields": f"""
        def make(name):
            yield 1
            return {SECRET}
        def f(cache): cache.live.create(make(1))
    """,
    "an async function that is not awaited": f"""
        async def make(name): return {SECRET}
        def f(cache): cache.live.create(make(1))
    """,
    "a function that returns nothing": "def make(): return None\ndef f(cache): cache.live.create(make())",
    "a class": "class Make: pass\ndef f(cache): cache.live.create(Make())",
}


@pytest.mark.parametrize("title", NOT_FOLLOWED)
def test_20_nothing_is_guessed(title: str) -> None:
    assert keys_in(NOT_FOLLOWED[title]) == {None}


TEMPLATES = f"""
KIND = 'secrets'
TEMPLATE = {{'apiVersion': 'v1', 'kind': 'Secret'}}
def make(name): return {SECRET}
class Names:
    KIND = 'secrets'
"""


@pytest.mark.parametrize(
    "code",
    [
        "import names\ndef f(cache): cache.fetch(names.KIND, 'a')",
        "import names as n\ndef f(cache): cache.fetch(n.Names.KIND, 'a')",
        "from names import KIND as K\ndef f(cache): cache.fetch(K, 'a')",
        "from names import Names\ndef f(cache): cache.fetch(Names.KIND, 'a')",
        "from other import KIND\ndef f(cache): cache.fetch(KIND, 'a')",
        "import shop.parts.more\nimport shop.parts\ndef f(cache): cache.fetch(shop.parts.KIND, 'a')",
        "from shop import parts\ndef f(cache): cache.fetch(parts.KIND, 'a')",
        "from . import parts\ndef f(cache): cache.fetch(parts.KIND, 'a')",
        "from .parts import KIND\ndef f(cache): cache.fetch(KIND, 'a')",
    ],
)
def test_constants_of_the_operators_own_modules_are_followed(code: str) -> None:
    others = {"names": TEMPLATES, "other": "from names import KIND", "shop": "", "shop.parts": TEMPLATES}
    assert keys_in(code, **others) == {"secrets"}


@pytest.mark.parametrize(
    "code",
    [
        "import names\ndef f(cache): cache.live.create(names.make('a'))",
        "from names import make as m\ndef f(cache): cache.live.create(m('a'))",
        "import names\ndef f(cache): cache.live.create(names.TEMPLATE)",
        "from names import TEMPLATE\ndef f(cache): cache.live.create({**TEMPLATE, 'data': {}})",
    ],
)
def test_objects_of_the_operators_own_modules_are_followed(code: str) -> None:
    assert keys_in(code, names=TEMPLATES) == {"v1/Secret"}
    if "TEMPLATE" in code:
        changed = "import names\ndef change(key): names.TEMPLATE[key] = 'x'"
        assert keys_in(code, names=TEMPLATES, other=changed) == {None}


@pytest.mark.parametrize(
    "code",
    [
        "import library\ndef f(cache): cache.fetch(library.KIND, 'a')",
        "from library import KIND\ndef f(cache): cache.fetch(KIND, 'a')",
        "from ...library import KIND\ndef f(cache): cache.fetch(KIND, 'a')",
        "import names\ndef f(cache): cache.fetch(names.OTHER, 'a')",
        "import names\ndef f(cache): cache.fetch(names.Names.OTHER, 'a')",
        "import changed\nimport names\ndef f(cache): cache.fetch(names.KIND, 'a')",
        "import names\ndef f(cache): cache.fetch(names, 'a'); cache.live.create(names)",
    ],
)
def test_20_nothing_is_guessed_of_other_modules(code: str) -> None:
    others = {"changed": "import names\nnames.KIND = 'pods'"} if "changed" in code else {}
    assert keys_in(code, names=TEMPLATES, **others) == {None}


OPERATOR = """
import kopf
import kopf_selectcache as selectcache
from copies import NAMES, PLURAL, copy_of
from kopf_selectcache import Cached

WATCHED = Cached('app=web', keep=['metadata'])

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/namespaces'] = selectcache.EVERYTHING

@selectcache.reconcile('v1/namespaces', watches=[])
async def reconcile(cache, name, **_):
    source = await cache.fetch(PLURAL, NAMES.SOURCE, namespace='default', default=None)
    body = copy_of(source, name)
    if source is None:
        await cache.live.delete(PLURAL, NAMES.SOURCE, namespace=name)
    elif not await cache.fetch(f'v1/{PLURAL}', NAMES.SOURCE, namespace=name, default=None):
        await cache.live.create(body)
    else:
        await cache.live.replace(body)
        await cache.live.patch(PLURAL, NAMES.SOURCE, {'metadata': {'labels': {}}}, namespace=name)

@kopf.on.event('v1', 'configmaps')
@selectcache.with_cache
async def widen(cache, **_):
    await cache.declare(PLURAL, WATCHED)
"""

COPIES = """
KIND = 'Secret'
PLURAL = 'secrets'

class NAMES:
    SOURCE = 'pull'

def copy_of(source, namespace):
    made = {
        'apiVersion': 'v1',
        'kind': KIND,
        'metadata': {'name': f'{NAMES.SOURCE}', 'namespace': namespace},
        'type': source['type'],
    }
    made['data'] = source['data']
    return made
"""


@pytest.mark.usefixtures("nowhere")
def test_20_all_writes_of_an_operator_that_copies_secrets_are_found(command: Command, tmp_path: Path) -> None:
    (tmp_path / "copies.py").write_text(COPIES)
    said = command("rbac", "", "-A", source=OPERATOR)
    assert said.code == 0, said.errors
    assert "written out" not in said.output
    of_secrets = [rule for rule in rules(said.output)[""] if rule["resources"] == ["secrets"]]
    assert {verb for rule in of_secrets for verb in rule["verbs"]} == {
        "get", "list", "watch", "create", "update", "patch", "delete",
    }  # fmt: skip


@pytest.mark.usefixtures("nowhere")
def test_20_a_value_that_is_not_followed_is_named_with_its_place(command: Command, tmp_path: Path) -> None:
    (tmp_path / "copies.py").write_text(f"{COPIES}\nPLURAL = KIND.lower() + 's'\n")
    said = command("rbac", "", "-A", source=OPERATOR)
    for call, line in (("live.delete", 18), ("live.patch", 23)):
        assert f"The kind of cache.{call} in web.py, line {line}, is not written out" in said.output
    assert "live.create" not in said.output
    assert "The kind or the filter of cache.declare in web.py, line 28, is not written out" in said.output


@pytest.mark.usefixtures("nowhere")
def test_20_all_writes_of_the_example_that_copies_secrets_are_found(command: Command) -> None:
    source = (EXAMPLES / "10-copied-secrets" / "example.py").read_text()
    said = command("rbac", "", "-A", source=source)
    assert said.code == 0, said.errors
    assert "The kind of cache.live" not in said.output
    verbs = {
        verb for rule in rules(said.output)[""] for verb in rule["verbs"] if "secrets" in rule["resources"]
    }
    assert verbs == {"get", "list", "watch", "create", "update", "delete"}
