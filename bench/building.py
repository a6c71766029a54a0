"""Build the peers that are not written in Python, on first use, into the user's cache folder: one folder for
each set of sources.

It downloads no toolchain: a peer without one is left out, by name and with the reason.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.apiserver.build import cache_folder

SOURCES = Path(__file__).parent / "peers"


class LeftOut(Exception):
    """A peer that is not available here, with the reason."""


@dataclass(frozen=True)
class Recipe:
    """The build of one folder of sources into one file."""

    folder: str
    tool: str
    """The command that builds it."""
    command: tuple[str, ...]
    """Its arguments; `{target}` is the folder of the result."""
    product: str
    """The resulting file in that folder."""
    env: Mapping[str, str]


_OF_GO: Mapping[str, Any] = {
    "tool": "go",
    "command": ("build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", "{target}/peer", "."),
    "product": "peer",
    "env": {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"},
}
RECIPES = {
    recipe.folder: recipe
    for recipe in (
        Recipe("go", **_OF_GO),
        Recipe("go_reconciler", **_OF_GO),
        Recipe(
            "rust",
            "cargo",
            ("build", "--release", "--locked", "--target-dir", "{target}"),
            "release/peer",
            {},
        ),
        Recipe("java", "mvn", ("--batch-mode", "--quiet", "package", "-Dout={target}"), "peer.jar", {}),
    )
}


def built(recipe: Recipe, *, say: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> Path:
    """Return the built file; raise LeftOut."""
    sources = SOURCES / recipe.folder
    if not sources.is_dir():
        raise LeftOut(f"bench/peers/{recipe.folder} is not there")
    tool = shutil.which(recipe.tool, path=environ.get("PATH", ""))
    if tool is None:
        raise LeftOut(f"{recipe.tool} is not installed")
    folder = cache_folder(environ).parent / "bench" / f"{recipe.folder}-{key_of(sources, recipe)}"
    product = folder / Path(recipe.product).name
    if not product.exists():
        partial = folder.with_suffix(f".{os.getpid()}")
        partial.mkdir(parents=True)
        say(
            f"building bench/peers/{recipe.folder} with {recipe.tool}, once: this takes some minutes, and"
            " downloads what it is made of"
        )
        done = subprocess.run(  # The toolchain of this machine.  # noqa: S603
            [tool, *(part.format(target=partial) for part in recipe.command)],
            cwd=sources,
            env={**environ, **recipe.env},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(partial, ignore_errors=True)
            raise LeftOut(
                f"{recipe.tool} could not build it: {_reason(done.stderr + done.stdout) or done.returncode}"
            )
        folder.mkdir(exist_ok=True)
        partial.joinpath(recipe.product).replace(
            product
        )  # The files of the build take much more room than its result.
        shutil.rmtree(partial)
    return product


def _reason(said: str) -> str:
    """Return the line with the error: tools write their help after it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")


def key_of(sources: Path, recipe: Recipe) -> str:
    """Name a build by a hash of its inputs."""
    digest = hashlib.sha256(repr(recipe).encode())
    for path in sorted(path for path in sources.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(sources)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
