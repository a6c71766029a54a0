"""mypy and pyright say of typed.py what it says of itself: each type, and each mistake. Seconds each; nothing
is downloaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # mypy reads all that kubernetes has, without a cache.

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent


def checked(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, check=False, timeout=840
    )
    return f"{done.stdout}{done.stderr}" if done.returncode else ""


def test_mypy_infers_the_type_of_each_read(tmp_path: Path) -> None:
    config = tmp_path / "mypy.ini"
    # Of pykube and kubernetes_asyncio mypy takes no note without being told.
    config.write_text("[mypy]\nstrict = True\nfollow_untyped_imports = True\nimplicit_reexport = True\n")
    said = checked(
        "mypy",
        f"--config-file={config}",
        f"--cache-dir={os.devnull}",
        str(FOLDER / "typed.py"),
        cwd=ROOT,
    )
    assert not said, said


def test_pyright_infers_the_type_of_each_read(tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps(
            {
                "include": [str(FOLDER / "typed.py")],
                "extraPaths": [str(ROOT)],
                "typeCheckingMode": "strict",
                "enableTypeIgnoreComments": False,
                "reportUnnecessaryTypeIgnoreComment": "error",
                # What clients do not say of their own types is no fault of ours.
                **dict.fromkeys(
                    (
                        "reportMissingTypeStubs",
                        "reportUnknownMemberType",
                        "reportUnknownVariableType",
                        "reportUnknownArgumentType",
                        "reportUnknownParameterType",
                        "reportMissingTypeArgument",
                    ),
                    "none",
                ),
            }
        )
    )
    said = checked("basedpyright", "--pythonpath", sys.executable, "--project", str(tmp_path), cwd=tmp_path)
    assert not said, said
