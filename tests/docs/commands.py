"""docs/commands.md: generated from the help of the commands, and from outputs that
tests/cli/test_documentation.py compares with real ones. `python -m tests.docs.commands` writes the page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping

from kopf_selectcache.__main__ import parser_of_commands
from kopf_selectcache.cli.output import Parser

from .pages import DOCS

PAGE = DOCS / "commands.md"
COMMON = ("Operator (as in `kopf run`)", "Cluster", "Caches declared at run time")
"""Groups of options that several commands have."""
# A line of a page may be longer.
# ruff: noqa: E501
ELSEWHERE = ("help", "output", "action", "shell")
"""What the section about output explains, and what examples show."""
MOST_EXAMPLES = 2
"""So many examples of the help are on the page."""

INTRO = """\
# Commands

You check an operator's caches before you deploy it, find out why an object isn't cached, and print the roles it
needs. Without scripts on your path, write `python -P -m kopf_selectcache`. Don't call your file `operator.py`,
like Python's own module.

`check`, `why`, `outside`, `adopt`, `rbac` and `shards` load your operator as `kopf run` does. They call its startup,
login and cleanup handlers with everything that these start. Only `adopt --apply` and `finalizers remove --yes`
change the cluster. To check an account's permissions, you need permission to impersonate it.
"""

OUTPUTS = {
    "check": """\
KIND     FILTER                                     OBJECTS  BYTES             PERMISSIONS
pods     app=web                                    2 of 12  748 B of 4.4 KiB  ok
secrets  names=['ca', 'tls'], namespaces=['infra']  1 of 1   232 B of 232 B    ok

2 caches, 3 objects, under 1 MiB. No problems found.
""",
    "why": """\
pods/sql-0 in default exists, but the filter leaves it out:
  app=web: it has app=sql
To include it: kubectl -n default label pods sql-0 app=web --overwrite
""",
    "adopt": """\
pods/web-2 in default would get app=web: webapps.example.com/shop in default owns it.
Would label 1 of 1 object. Nothing was changed. To do it, add --apply.
Searched: pods, webapps.example.com.
""",
    "rbac": """\
missing: list, watch secrets tls in infra, for caches
  add to a Role in infra: - {apiGroups: [''], resources: [secrets], resourceNames: [tls], verbs: [list, watch]}
too much: delete pods
""",
}
"""What commands print, of `rbac` with --check."""

OUTPUT = """\
## Output

Errors, hints and notes go to stderr. `NO_COLOR` turns colours off.

| exit code | meaning |
|---|---|
| 0 | no problems |
| 1 | the command found a problem, or failed |
| 2 | the arguments are wrong, or the command can't answer |
| 130 | Ctrl-C |

`-o json` and `-o yaml` print one document, `serve -o json` one on each line, with `error` and `hint` if a command
can't answer.

| command | fields |
|---|---|
| `check` | `problemCount`, `problems`, `hints`, `eventsApi`, `sharding`, `caches` with `kind`, `apiVersion`, \
`filter`, `kept`, `origins`, `cached`, `outside`, `memoryBytes`, `all`, `watches`, `permissions`, \
`changeHandlers`, `reconcilers`, `kopfHandlers`, `division`, `hints`, `problems` |
| `why` | `object`, `caches` with `standing`, `alternatives`, `remedy`, `remedyNeeds`, `missingPermissions`, `unanswered`, and \
with sharding `replica`, `range` |
| `outside` | `searched`, `searchedMetadata`, `notes`, `objects` with `kind`, `namespace`, `name`, `reasons`, `fails` |
| `adopt` | those of `outside`, `applied`, `count`, and of each object `labels`, `text`, `result` (`adoptable`, `adopted`, \
`selected`, `absent`, `left`, `failed`) |
| `rbac` | `apiVersion`, `kind`, `items`. With `--check`: `missing` and `tooMuch` rules with `reasons` or `needed`, `eventsApi`, `notes` |
| `shards` | `operators` with `name`, `namespace`, `by`, `assignment`, `replicas`, `ranges`, `moves`, `unowned` |
| `finalizers` | `finalizer`, `removed`, `count`, `objects` with `kind`, `namespace`, `name`, `result`, `text` |
| `serve` | `url`, `kubeconfig`, `objects`. With `-v` for each request: `method`, `path`, `query`, `code` |
"""


def write() -> str:
    """Return the page."""
    commands = commands_of(parser_of_commands())
    parts = [INTRO, *(_section(name, command) for name, command in commands.items())]
    parts.append("## Common options\n")
    parts += _common(commands)
    parts.append(OUTPUT)
    return "\n".join(parts)


def commands_of(parser: Parser) -> Mapping[str, Parser]:
    """Return the commands of the parser, by name."""
    return next(action.choices for action in parser._actions if isinstance(action.choices, dict))


def _section(name: str, command: Parser) -> str:
    shell = "\n".join(command.examples[:MOST_EXAMPLES])
    parts = [f"## `{name}`", *map(_marked, command.paragraphs), f"```shell\n{shell}\n```"]
    if name in OUTPUTS:
        parts.append(f"```text\n{OUTPUTS[name]}```")
    if own := [row for title, rows in _groups(command) if title not in COMMON for row in rows]:
        parts.append(_list(own))
    return "\n\n".join(parts) + "\n"


def _common(commands: Mapping[str, Parser]) -> Iterator[str]:
    """Yield the options of each group that several commands have, once."""
    for title in COMMON:
        of = {name: rows for name, each in commands.items() for head, rows in _groups(each) if head == title}
        (rows, *others) = of.values()
        assert all(each == rows for each in others), f"{title} differs"
        yield f"{title}, for {', '.join(f'`{name}`' for name in of)}:\n\n{_list(rows)}\n"


def _groups(command: Parser) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the title of each group, and its options with their help."""
    for group in command._action_groups:  # argparse has no public list of them.
        actions = (each for each in group._group_actions if each.dest not in ELSEWHERE)
        rows = [_row(each) for each in actions]
        if rows:
            yield group.title or "", rows


def _row(action: argparse.Action) -> tuple[str, str]:
    """Return an option, or the name of an argument, and its help."""
    names = ", ".join(f"`{each}`" for each in action.option_strings)
    if not names:
        choices = ", ".join(map(str, action.choices or ()))
        names = f"`{action.metavar or choices}`"
    help_ = _marked((action.help or "").replace("%(default)s", str(action.default)))
    return names, help_


def _marked(text: str) -> str:
    """Return a text whose options are code: Sphinx would make a dash of two hyphens."""
    return re.sub(r"(?<![`\w-])--[a-z]+", r"`\g<0>`", text)


def _list(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"- {names}: {help_}" if help_ else f"- {names}" for names, help_ in rows)


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(after := write(), encoding="utf-8")
    print(f"{PAGE.name}: {'unchanged' if after == before else 'updated'}")
