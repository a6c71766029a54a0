"""Configuration of the site of these pages: `make docs`. It sends no request, and treats every warning as an
error.
"""  # Sphinx loads it by its path.  # noqa: INP001

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx  # It is in the extra `docs` only, and tests load this file.

HERE = Path(__file__).parent
LINK = re.compile(r"\[([^\]]+)\]\(((?!https?:)[^)#]+)(#[^)]*)?\)")
NAMED = re.compile(
    r"^\[([^\]]+)\]: (?!https?:)(\S+/)$", re.MULTILINE
)  # A folder, under a name for several links.

PICTURE = re.compile(
    r'<picture><source .* srcset="([^"]+)">'
    r'<img alt="([^"]+)" src="([^"]+)" width="(\d+)">.*'
)

NEVER_MADE = {
    f"kopf_selectcache.{name}" for name in ("Cache", "Change", "Objects", "SelectCacheSettings", "SyncCache")
}
"""Classes that users do not construct, with all of `kopf_selectcache.types`."""

project = "kopf_selectcache"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
myst_html_meta = {
    "description": "A cache of Kubernetes objects for Kopf operators, filtered by the API server"
}
default_role = "code"
autodoc_default_options = {
    "members": True,
    "inherited-members": "tuple,Enum,str,dict,Mapping,MutableMapping",
    # For use within the package.
    "exclude-members": "at, box, branches, contradiction_in, failed, unknown, with_defaults",
}
autodoc_typehints = "none"
exclude_patterns = ["dev"]  # For contributors, who read it in the repository.
html_theme = "furo"
pygments_dark_style = "github-dark"
html_theme_options = {"dark_css_variables": {"color-code-background": "#1c2128"}}
html_title = "kopf_selectcache"
html_logo = html_favicon = "site/logo.svg"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False


def within(match: re.Match[str], page: Path) -> str:
    """Return the link as the site can have it: files outside of the site by their name only."""
    text, target, _ = match.groups(default="")
    found = (page.parent / target).resolve()
    is_page = found.is_relative_to(HERE) and not found.is_relative_to(HERE / "dev")
    if found.is_dir() or (found.suffix == ".md" and not is_page):
        path = found.relative_to(HERE.parent)
        return f"`{text}`" if text == str(path) else f"{text} (`{path}`)"
    return match[0]


def variants(match: re.Match[str]) -> str:
    """Return both variants of a picture, one for each theme."""
    dark, alt, light, width = match.groups()
    return "\n\n".join(
        f"```{{image}} {file}\n:alt: {alt}\n:class: {name}\n:width: {width}px\n```"
        for file, name in ((light, "only-light"), (dark, "only-dark"))
    )


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn a page into one of the site: drop links that lead out of this folder."""
    page = Path(app.env.doc2path(name))
    text = NAMED.sub("", LINK.sub(lambda match: within(match, page), source[0]))
    source[0] = PICTURE.sub(variants, text)


def code_apart(_: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]) -> None:
    """Show the indented parts of a docstring as code, and not as a quotation.

    If only code follows the first line, its indentation is lost by now; but prose begins with a capital.
    """
    told, code, margin = [""], False, ""
    for line in lines:
        if line.strip() and not told[-1].strip():
            before, code = (
                code,
                line.startswith("    ") or (len(told) > 1 and (line[0].islower() or line[0] == "@")),
            )
            margin = "    " if code and not line.startswith("    ") else margin if code else ""
            told += ["::", ""] if code and not before else []
        told.append(f"{margin}{line}")
    lines[:] = [*told, ""]


def without_insides(
    _: Sphinx, what: str, name: str, ____: object, _____: object, signature: str | None, ______: str | None
) -> tuple[str | None, None]:
    """Show no signature of classes that users do not construct."""
    is_made = name not in NEVER_MADE and not (what == "class" and name.startswith("kopf_selectcache.types."))
    return (signature if is_made else ""), None


def setup(app: Sphinx) -> None:
    from pygments.lexers.special import TextLexer  # The extra `docs` has it.  # noqa: PLC0415

    app.add_lexer("mermaid", TextLexer)  # Repositories draw a diagram; the site shows its text.
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", code_apart)
    app.connect("autodoc-process-signature", without_insides)
