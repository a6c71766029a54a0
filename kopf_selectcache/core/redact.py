"""Quotes in messages: clipped, on one line, and without values that may be secrets. Imports nothing of the
package.

A `Phrase` keeps its template and parts, so that log records can be grouped by template.
"""

from __future__ import annotations

MOST_SHOWN_CHARACTERS = 2_000
"""Limit in characters of each part of an error's text: selectors may be much longer."""


def clipped(given: object, most: int = MOST_SHOWN_CHARACTERS) -> str:
    """Return the beginning and the end of a long text."""
    text = str(given)
    end = most // 3
    return text if len(text) <= most else f"{text[: most - end]}… ({len(text):,} characters) …{text[-end:]}"


def shown(given: object) -> str:
    """Return an argument for a message: texts and numbers as they are, only the type of anything that may be
    an object with secrets.
    """
    given_all = given if isinstance(given, (list, tuple, set, frozenset)) else (given,)
    plain = all(
        isinstance(each, (str, float, bool))
        or (isinstance(each, int) and each.bit_length() < 99)
        or each is None
        for each in given_all
    )
    return clipped(repr(given), 200) if plain else _type_of(given)


def shown_by_type(given: object) -> str:
    """Return the type of an argument of a read, or a number as it is. A text in the wrong place may be a
    Secret's value.

    >>> shown_by_type('hunter2'), shown_by_type(None), shown_by_type(-1)
    ('a str', 'None', '-1')
    """
    is_plain = given is None or isinstance(given, (bool, int, float))
    return shown(given) if is_plain else _type_of(given)


def _type_of(given: object) -> str:
    name = type(given).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, 'object'), counted(1000, 'object')
    ('1 object', '1,000 objects')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def function_name(function: object) -> str:
    """Return the name of a function, or the type of another callable. The `repr` of that may have secrets, as
    that of a `functools.partial` has its arguments.

    >>> from functools import partial
    >>> function_name(print), function_name(partial(print, 'hunter2'))
    ('print', 'partial')
    """
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


FULL_NAME_CHARACTERS = 63 + 1 + 253
"""Maximum length of a namespace, a slash and a name."""


def printable_name(namespace: str, name: str) -> str:
    """Return the name of an object, with its namespace if it has one, for a log.

    >>> printable_name('shop', 'web-1'), printable_name('', 'node-1')
    ('shop/web-1', 'node-1')
    """
    return printable("/".join(filter(None, (namespace, name))), FULL_NAME_CHARACTERS)


def printable(text: str, most: int) -> str:
    r"""Return a server's text as one line of at most this many printable characters, for a log.

    >>> printable('web-1\x1b[31m\nERROR all is lost', 20)
    'web-1 [31m ERROR all…'
    """
    line = text if len(text) <= most else f"{text[:most]}…"
    return line if line.isprintable() else "".join(each if each.isprintable() else " " for each in line)


def one_line(text: str) -> str:
    r"""Return the sentences of several lines as one line.

    >>> one_line("Did you mean 'pods'?\nCorrect the key")
    "Did you mean 'pods'? Correct the key"
    """
    return text.replace("?\n", "? ").replace("\n", ". ")


class Phrase:
    """A text made of a `%` template and named parts; its `str` is the text.

    A part that is a phrase itself becomes part of the template:

    >>> phrase = Phrase("%(message)s. Retried.", message=Phrase("%(resource)s: no answer", resource="pods"))
    >>> phrase.template, phrase.parts, str(phrase)
    ('%(resource)s: no answer. Retried.', {'resource': 'pods'}, 'pods: no answer. Retried.')
    """

    __slots__ = ("parts", "template")

    def __init__(self, template: str, /, **parts: object) -> None:
        self.template = template
        self.parts = {name: str(part) for name, part in parts.items() if not isinstance(part, Phrase)}
        for name, part in parts.items():
            if isinstance(part, Phrase):
                self._include(name, part)

    def _include(self, name: str, phrase: Phrase) -> None:
        if any(self.parts.get(inner, value) != value for inner, value in phrase.parts.items()):
            self.parts[name] = str(phrase)  # Two parts of one name differ: this phrase stays one part.
        else:
            self.template = self.template.replace(f"%({name})s", phrase.template)
            self.parts |= phrase.parts

    def __str__(self) -> str:
        return self.template % self.parts

    def on_one_line(self) -> Phrase:
        """Return the sentences of the lines, without the last full stop, as one line for a log."""
        parts = {name: one_line(part) for name, part in self.parts.items()}
        return Phrase(one_line(self.template), **parts)

    def __bool__(self) -> bool:
        return bool(self.template)


NOTHING = Phrase("")
