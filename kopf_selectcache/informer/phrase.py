"""Texts that keep their template and parts, so that log records can be grouped by template."""

from __future__ import annotations


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

LOOKED_FOR = "\nThe cache waits for it"
"""The end of the remedy for a declared kind that is not served."""
