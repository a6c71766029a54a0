"""The binaries are found, built once, or it is said what to do. No server runs here."""

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.apiserver import build
from tests.apiserver.build import PACKAGES, AssetsError, NoServer
from tests.conftest import without_server

TOOLCHAIN = ("go1.26.1", "linux", "amd64")
# Answers `go env` as a toolchain of that version, and builds files that say which package they are from.
GO = """#!/bin/sh
if [ "$1" = env ]; then printf '%s\\nlinux\\namd64\\n' {version}; exit; fi
echo "$@" >> "$BUILT"
{then}
while [ "$1" != -o ]; do shift; done
echo "$3" > "$2"
chmod +x "$2"
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    copy = tmp_path / "module"
    copy.mkdir()
    for name in build.SOURCES:
        shutil.copy(build.MODULE / name, copy)
    return copy


def machine(folder: Path, version: str = "go1.99.0", then: str = "") -> Mapping[str, str]:
    """The environment of a machine that has that Go, and an empty cache. Its builds are logged in `built`."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "go").write_text(GO.format(version=version, then=then))
    (tools / "go").chmod(0o755)
    return {
        "PATH": f"{tools}:{os.defpath}",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "BUILT": str(folder / "built"),
    }


def builds(folder: Path) -> int:
    return len((folder / "built").read_text().splitlines())


@pytest.mark.parametrize("name", build.SOURCES)
def test_a_changed_source_is_another_build(module: Path, name: str) -> None:
    before = build.key_of(TOOLCHAIN, module)
    with (module / name).open("a") as file:
        file.write("// changed\n")
    assert build.key_of(TOOLCHAIN, module) != before


def test_the_server_receives_the_version_that_go_mod_names(module: Path) -> None:
    (module / "go.mod").write_text(
        "module example.com/m\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.99.7\n)\n"
    )
    assert build.flags_of(module)[-1].endswith("gitVersion=v1.99.7")


@pytest.mark.parametrize(("version", "module"), build.MODULES.items(), ids=build.MODULES)
def test_each_version_has_a_module_that_names_it_and_the_same_program(version: str, module: Path) -> None:
    assert build.kubernetes_version(module).startswith(f"v{version}.")
    assert (module / "main.go").read_text() == (build.MODULE / "main.go").read_text()


def test_the_variable_kubernetes_chooses_the_version_that_is_built(tmp_path: Path) -> None:
    there = machine(tmp_path, then='pwd >> "$BUILT"')
    folders = [build.find_assets({**there, **choice}) for choice in ({}, {"KUBERNETES": "1.33"})]
    default, older = folders
    assert default != older
    lines = (tmp_path / "built").read_text().splitlines()
    assert [
        ("gitVersion=v1.33." in command, Path(folder))
        for command, folder in zip(lines[::2], lines[1::2], strict=True)
    ] == [*[(False, build.MODULE)] * len(PACKAGES), *[(True, build.MODULES["1.33"])] * len(PACKAGES)]


def test_a_version_without_a_module_is_named_with_those_that_have_one() -> None:
    with pytest.raises(AssetsError):
        build.module_of({"KUBERNETES": "1.12"})


@pytest.mark.parametrize("patch", ["3", "13", "0-rc.1"])
def test_a_server_is_asked_for_its_version(tmp_path: Path, patch: str) -> None:
    server = tmp_path / "kube-apiserver"
    server.write_text(f"#!/bin/sh\necho Kubernetes v1.33.{patch}\n")
    server.chmod(0o755)
    assert build.version_of(tmp_path) == (1, 33)


def test_the_folder_in_kubebuilder_assets_is_used_without_go(tmp_path: Path) -> None:
    for name in PACKAGES:
        (tmp_path / name).touch(0o755)
    assert build.find_assets({"PATH": "", "KUBEBUILDER_ASSETS": str(tmp_path)}) == tmp_path


def test_without_go_the_remedy_is_shown() -> None:
    with pytest.raises(NoServer):
        build.find_assets({"PATH": ""})


def test_a_go_that_is_too_old_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(NoServer):
        build.find_assets(machine(tmp_path, version="go1.20.3"))


def test_an_existing_build_is_not_built_again(tmp_path: Path) -> None:
    there = machine(tmp_path)
    assert build.find_assets(there) == build.find_assets(there)
    assert builds(tmp_path) == len(PACKAGES)


def test_of_many_builders_at_once_one_builds_and_the_others_wait(tmp_path: Path) -> None:
    there = machine(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(build.find_assets, [there] * 8))
    assert len(folders) == 1
    assert builds(tmp_path) == len(PACKAGES)


def test_a_failed_build_shows_the_output_of_go_and_leaves_nothing_in_place(tmp_path: Path) -> None:
    with pytest.raises(AssetsError):
        build.find_assets(machine(tmp_path, then="echo 'main.go:1: broken' >&2; exit 1"))
    assert build.find_assets(machine(tmp_path)).is_dir()


def test_a_test_without_a_server_is_skipped_with_the_reason() -> None:
    with pytest.raises(pytest.skip.Exception) as caught:
        without_server("install Go", {})
    assert caught.value.msg == "install Go"


def test_in_ci_a_test_without_a_server_fails_with_the_reason() -> None:
    with pytest.raises(pytest.fail.Exception) as caught:
        without_server("install Go", {"CI": "true"})
    assert caught.value.msg == "install Go"
