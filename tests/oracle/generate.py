"""Makes selector texts, valid and broken, and sets to match: the same seed, the same cases. Judges nothing.

A case is planned as requirements, written down with the spaces and commas that the grammar allows, and spoilt
now and then. Its sets are made from the plan: one that should match, then neighbours that differ by one value
or one key."""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

from tests.oracle import words

Kind = Literal["label", "field"]
T = TypeVar("T")

_WORD = re.compile(r"[^\s=!(),<>]+")


class Case(NamedTuple):
    """A text to parse, and sets to match: labels or fields."""

    kind: Kind
    text: str
    sets: tuple[dict[str, str], ...]


class _Planned(NamedTuple):
    """What a requirement was meant to say. Spoiling the text may change that; the sets are near to it all the
    same."""

    key: str
    operator: str
    values: list[str]


def cases(seed: int | str, count: int) -> Iterator[Case]:
    """Make the first `count` cases of a seed: two thirds are label selectors, as theirs is the larger
    grammar."""
    labels, fields = _Labels(random.Random(f"label {seed}")), _Fields(random.Random(f"field {seed}"))
    for number in range(count):
        yield fields.case() if number % 3 == 2 else labels.case()


class _Generator(ABC):
    """What both grammars share."""

    kind: Kind
    noise: tuple[str, ...]

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.random() * len(items))]

    def upto(self, limit: int) -> int:
        return int(self.rng.random() * (limit + 1))

    def case(self) -> Case:
        plan, text = self.written()
        share = self.rng.random()
        if share < 0.22:
            text = self.spoilt(text)
        elif share < 0.27:
            text = "".join(self.pick(self.noise) for _ in range(self.upto(12)))
        elif share < 0.28:
            at = self.upto(len(text))
            text = f"{text[:at]}\0{text[at:]}"
        return Case(self.kind, text, tuple(self.sets(plan, text)))

    @abstractmethod
    def written(self) -> tuple[list[_Planned], str]:
        """Write a selector, and say what was planned."""

    def spoilt(self, text: str) -> str:
        """Delete, insert, replace or transpose; mostly once, as a second mistake seldom gets a parser any
        further."""
        while True:
            at = self.upto(max(len(text) - 1, 0))
            match self.upto(4):
                case 0:
                    text = text[:at] + text[at + 1 :]
                case 1:
                    text = text[:at] + self.pick(self.noise) + text[at:]
                case 2:
                    text = text[:at] + self.pick(self.noise) + text[at + 1 :]
                case 3:
                    text = text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
                case _:
                    text = text[:at] if self.chance(0.5) else text[at:]
            if self.chance(0.7):
                return text

    def joined(self, parts: list[str]) -> str:
        """Put commas between the requirements, and now and then one too many."""
        text = ",".join(parts)
        if self.chance(0.03):
            doubled = text.replace(",", ",,", 1)
            text = self.pick(
                (doubled, f",{text}", f"{text},", f",{text},", f"{text},,", f" ,{text}", f"{text}, ")
            )
        return text

    def size(self) -> int:
        """Draw the number of requirements: mostly few; some around 12, where Go's sort stops keeping the
        order."""
        if self.chance(0.03):
            return 11 + self.upto(3) if self.chance(0.7) else 14 + self.upto(16)
        return self.pick((1, 1, 2, 2, 2, 3, 4))

    def sets(self, plan: list[_Planned], text: str) -> Iterator[dict[str, str]]:
        matching = {}
        for wanted in plan:
            value = self.satisfying(wanted)
            if value is not None:
                matching[wanted.key] = value
        yield matching
        mentioned = _WORD.findall(text) or [""]
        for _ in range(2 + self.upto(1)):
            near = dict(matching)
            for _ in range(1 + self.upto(1)):
                key = self.pick(plan).key if plan and self.chance(0.85) else self.pick(mentioned)
                if self.chance(0.25):
                    near.pop(key, None)
                else:
                    near[key] = self.neighbour(near.get(key, ""), plan, mentioned)
            if self.chance(0.1):
                near["unmentioned"] = self.pick(mentioned)
            yield near
        if self.chance(0.1):
            yield {}

    def satisfying(self, wanted: _Planned) -> str | None:
        """Find a value with which the planned requirement holds, None for an absent key."""
        match wanted.operator:
            case "!":
                return None
            case "!=" | "notin":
                return None if self.chance(0.5) else "other"
            case ">" | "<":
                step = 1 if wanted.operator == ">" else -1
                value = wanted.values[0]
                # Python's int reads more than digits, and would refuse thousands of them.
                return (
                    str(int(value) + step)
                    if value.isascii() and value.isdigit() and len(value) < 100
                    else value
                )
            case "":
                return self.pick(words.VALUES)
        return self.pick(wanted.values) if wanted.values else ""

    def neighbour(self, value: str, plan: list[_Planned], mentioned: list[str]) -> str:
        match self.upto(11):
            case 0:
                return ""
            case 1:
                return f"0{value}"
            case 2 | 3:
                if value.isascii() and value.isdigit() and len(value) < 100:
                    return str(int(value) + self.pick((-1, 1, 2**63, 2**64)))
                return value.swapcase()
            case 4:
                around = self.pick(("+{}", "-{}", " {}", "{} ", "{}\n", "{}x")).format(value)
                return self.pick((around, around, value[:-1], value[1:]))
            case 5:
                return self.pick(words.NEAR_INTEGERS)
            case 6:
                return self.pick(words.INTEGERS)
            case 7:
                return self.pick(words.BROKEN_VALUES)
            case 8:
                return self.pick(mentioned)
            case 9 | 10:
                return self.pick(self.pick(plan).values or [""]) if plan else ""
        return value


class _Labels(_Generator):
    kind = "label"
    noise = words.LABEL_NOISE

    def written(self) -> tuple[list[_Planned], str]:
        plan: list[_Planned] = []
        size = self.size()
        # One part is broken at most: the first mistake ends the parse, others would never be seen.
        bad = self.upto(size - 1) if self.chance(0.37) else -1
        parts = [self.requirement(plan, broken=number == bad) for number in range(size)]
        if self.chance(0.02):
            return [], self.pick((*words.BARE_LABEL_TEXTS, *words.SPACES, *words.FALSE_SPACES))
        return plan, self.joined(parts)

    def requirement(self, plan: list[_Planned], *, broken: bool) -> str:
        # One thing is broken at a time: the shape, the key, a value or the space.
        fault = self.pick(("shape", "shape", "key", "value", "value", "space")) if broken else ""
        shape = self.pick(words.BROKEN_SHAPES if fault == "shape" else words.SHAPES)
        while fault == "value" and "V" not in shape and "N" not in shape:
            shape = self.pick(words.SHAPES)
        if "K" not in shape:  # The shape has a key of its own, `in` or `notin`.
            key = shape.split(" ")[0]
        elif plan and self.chance(0.3):
            key = self.pick(plan).key
        else:
            key = self.key(broken=fault == "key")
        values: list[str] = []
        tokens = []
        for token in shape.split(" "):
            match token:
                case "K":
                    tokens.append(key)
                case "V":
                    drawn = values[0] if values and self.chance(0.15) else self.value(broken=fault == "value")
                    values.append(drawn)
                    tokens.append(drawn)
                case "N":
                    values.append(self.pick(words.BROKEN_INTEGERS if fault == "value" else words.INTEGERS))
                    tokens.append(values[-1])
                case _:
                    tokens.append(token)
        operators = [
            token for token in shape.split(" ") if token in ("=", "==", "!=", "in", "notin", ">", "<", "!")
        ]
        if "K" not in shape:
            del operators[:1]
        if not values or any(gap in shape for gap in ("( ,", ", ,", ", )")):
            values.append("")
        plan.append(_Planned(key, operators[0] if operators else "", values))
        return self.spaced(tokens, false=fault == "space")

    def spaced(self, tokens: list[str], *, false: bool) -> str:
        """Put space around tokens: needed between two words, free elsewhere."""
        place = self.upto(len(tokens)) if false else -1
        roomy = self.chance(0.3)
        text, before = "", ""
        for number, token in enumerate([*tokens, ""]):
            if number == place:
                text += self.pick(words.FALSE_SPACES) if self.chance(0.9) else ""
            elif _WORD.match(token) and _WORD.match(before):
                text += self.pick(words.SPACES) if roomy or self.chance(0.2) else " "
            elif roomy and self.chance(0.6):
                text += self.pick(words.SPACES)
            text += token
            before = token
        return text

    def key(self, *, broken: bool) -> str:
        if broken:
            return self.pick(words.BROKEN_KEYS)
        return self.pick(words.LONG_KEYS if self.chance(0.02) else words.KEYS)

    def value(self, *, broken: bool) -> str:
        if broken:
            return self.pick(words.BROKEN_VALUES)
        return self.pick(words.LONG_VALUES if self.chance(0.03) else words.VALUES)


class _Fields(_Generator):
    kind = "field"
    noise = words.FIELD_NOISE

    def written(self) -> tuple[list[_Planned], str]:
        size = self.size()
        bad = self.upto(size - 1) if self.chance(0.38) else -1
        plan: list[_Planned] = []
        parts = [self.term(plan, broken=number == bad) for number in range(size)]
        if self.chance(0.02):
            return [], self.pick((*words.BARE_FIELD_TEXTS, *words.SPACES, *words.FALSE_SPACES))
        return plan, self.joined(parts)

    def term(self, plan: list[_Planned], *, broken: bool) -> str:
        operator = self.pick(("=", "=", "==", "!="))
        if broken and self.chance(0.3):
            return self.pick(words.BROKEN_TERMS)
        if plan and self.chance(0.25):
            key = self.pick(plan).key
        else:
            key = self.pick(words.ODD_FIELDS if self.chance(0.2) else words.FIELDS)
        if broken:
            value = self.pick(words.BROKEN_FIELD_VALUES)
        else:
            value = self.pick(words.ODD_FIELD_VALUES if self.chance(0.3) else words.FIELD_VALUES)
        # To match, the value is compared without its escapes; a broken one has no such form and is taken as
        # it is.
        plan.append(_Planned(key, operator, [re.sub(r"\\([\\,=])", r"\1", value)]))
        return f"{key}{operator}{value}"
