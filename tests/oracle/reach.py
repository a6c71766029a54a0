"""Measures which statements of Go's own parsers and matchers the generated cases run. `python -m
tests.oracle.reach`

It proves that the generator reaches every branch: what stays unrun is listed below, with the reason why no
text reaches it. The other functions of the same files (other entrances, copies, transformations) are nobody's
concern here."""

import bisect
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.apiserver.build import Go
from tests.oracle.generate import Case
from tests.oracle.golang import NoGo, OracleError, ask, build, find_go
from tests.oracle.regenerate import stored

Function = tuple[str, str]

# Where selectors are parsed, printed and matched.
JUDGING: Mapping[str, str] = {
    "labels/selector.go": (
        "Parse parse isWhitespace isSpecialSymbol *Lexer.read *Lexer.unread *Lexer.skipWhiteSpaces *Lexer.Lex"
        " *Lexer.scanIDOrKeyword *Lexer.scanSpecialSymbol *Parser.lookahead *Parser.consume *Parser.scan"
        " *Parser.parse *Parser.parseRequirement *Parser.parseKeyAndInferOperator *Parser.parseOperator"
        " *Parser.parseValues *Parser.parseIdentifiersList *Parser.parseExactValue validateLabelKey"
        " validateLabelValue NewRequirement ByKey.Len ByKey.Swap ByKey.Less *Requirement.hasValue"
        " *Requirement.Matches *Requirement.String safeSort internalSelector.Matches internalSelector.String"
    ),
    "labels/labels.go": "Set.Has Set.Lookup",
    "fields/selector.go": (
        "ParseSelector parseSelector splitTerms splitTerm EscapeValue UnescapeValue Everything "
        "*hasTerm.Matches *hasTerm.Empty *hasTerm.Transform *hasTerm.String "
        "*notHasTerm.Matches *notHasTerm.Empty *notHasTerm.Transform *notHasTerm.String "
        "andTerm.Matches andTerm.Empty andTerm.Transform andTerm.String"
    ),
    "fields/fields.go": "Set.Get",
    "content/kube.go": "IsLabelKey IsLabelValue prefixEach",
    "content/dns.go": "IsDNS1123Subdomain isDNS1123Subdomain",
}

# How many statements no text reaches, and why.
UNREACHABLE: Mapping[Function, tuple[int, str]] = {
    ("labels/selector.go", "*Lexer.scanSpecialSymbol"): (1, "each special character alone is a token"),
    ("labels/selector.go", "*Parser.parseValues"): (
        1,
        "the list of values ends in front of a ), or as an error",
    ),
    ("labels/selector.go", "NewRequirement"): (6, "the parser has checked the key and counted the values"),
    ("labels/selector.go", "*Requirement.Matches"): (
        5,
        "the operator is known, and < and > have one integer",
    ),
    ("labels/selector.go", "safeSort"): (4, "the parser sorts the values before"),
    ("fields/selector.go", "parseSelector"): (1, "a term is split at one of the three operators only"),
    ("fields/selector.go", "*hasTerm.Transform"): (1, "no transformation is given, so none fails"),
    ("fields/selector.go", "*notHasTerm.Transform"): (1, "no transformation is given, so none fails"),
    ("fields/selector.go", "andTerm.Transform"): (1, "no transformation is given, so none fails"),
    ("fields/selector.go", "andTerm.Empty"): (5, "asked of the empty selector alone, into which `=` turns"),
    ("content/dns.go", "isDNS1123Subdomain"): (3, "the prefix of a label key is never checked caselessly"),
}


class Reach:
    """What was run of the judging functions."""

    def __init__(self, statements: Mapping[Function, int], missed: Mapping[Function, int]) -> None:
        self.statements = statements
        self.missed = missed

    def surprises(self) -> Iterator[str]:
        """Name each function of which more, or less, was missed than is known to be unreachable."""
        for function, total in self.statements.items():
            missed, (known, _) = self.missed.get(function, 0), UNREACHABLE.get(function, (0, ""))
            if not total:
                yield f"{' '.join(function)}: Go has no such function any more"
            elif missed != known:
                yield (
                    f"{' '.join(function)}: {missed} of {total} statements not run, {known} known to be"
                    " unreachable"
                )

    def __str__(self) -> str:
        total = sum(self.statements.values())
        known = sum(count for count, _ in UNREACHABLE.values())
        run = total - sum(self.missed.values())
        return (
            f"{run} of {total} statements of {len(self.statements)} judging functions were run; "
            f"{known} are unreachable by any text: {run / (total - known):.1%} of the others"
        )


def measure(go: Go, cases: Iterable[Case]) -> Reach:
    """Ask the counting oracle and see what it has run."""
    oracle = build(go, counting=True)
    with tempfile.TemporaryDirectory() as folder:
        for _ in ask(oracle, cases, {**os.environ, "GOCOVERDIR": folder}):
            pass
        profile = Path(folder) / "profile"
        _covdata(go, "textfmt", f"-i={folder}", f"-o={profile}")
        starts = _functions(_covdata(go, "func", f"-i={folder}"))
        return _reach(profile.read_text(), starts)


def _covdata(go: Go, *arguments: str) -> str:
    done = subprocess.run(
        [go.path, "tool", "covdata", *arguments], env=go.environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OracleError(f"go tool covdata {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def _functions(listing: str) -> dict[str, list[tuple[int, str]]]:
    """Read where each function starts, by file: `.../labels/selector.go:907:  Parse  100.0%`."""
    starts: dict[str, list[tuple[int, str]]] = {}
    for file, line, name in re.findall(r"(\w+/\w+\.go):(\d+):\s+(\S+)\s+[\d.]+%", listing):
        starts.setdefault(file, []).append((int(line), name))
    return {file: sorted(found) for file, found in starts.items()}


def _reach(profile: str, starts: Mapping[str, list[tuple[int, str]]]) -> Reach:
    """Read the blocks, `.../labels/selector.go:907.72,909.16 2 1`: from, to, statements, and whether they
    were run."""
    judging = {(file, name) for file, names in JUDGING.items() for name in names.split()}
    # Zeros, so that a function which Go's source no longer has is still told of.
    statements, missed = Counter(dict.fromkeys(sorted(judging), 0)), Counter[Function]()
    for file, line, size, count in re.findall(
        r"(\w+/\w+\.go):(\d+)\.\S+ (\d+) (\d+)$", profile, re.MULTILINE
    ):
        known = starts[file]
        function = (file, known[bisect.bisect(known, int(line), key=lambda start: start[0]) - 1][1])
        if function in judging:
            statements[function] += int(size)
            missed[function] += 0 if int(count) else int(size)
    return Reach(statements, missed)


if __name__ == "__main__":
    try:
        reach = measure(find_go(), (case for case, _ in stored()))
    except (NoGo, OracleError) as error:
        sys.exit(str(error))
    print(reach)
    for (file, name), (count, why) in UNREACHABLE.items():
        print(f"  {file} {name}: {count}: {why}")
    sys.exit("\n".join(reach.surprises()) or None)
