"""Manifests: what is read of them, in which order it can be created, and what is said of those that are
none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopf_selectcache.testing.manifests import ManifestError, files_in, in_order, read_file, read_text


def test_a_file_has_several_documents_and_empty_ones_are_none(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("---\nkind: A\n---\n# nothing\n---\nkind: B\n")
    assert list(read_file(file)) == [{"kind": "A"}, {"kind": "B"}]


def test_lists_are_taken_apart() -> None:
    text = (
        '{"kind": "List", "apiVersion": "v1", "items": [{"kind": "A"}, {"kind": "List", "items": [{"kind":'
        ' "B"}]}]}'
    )
    assert list(read_text(text)) == [{"kind": "A"}, {"kind": "B"}]


def test_items_of_an_answer_are_of_the_kind_of_their_list() -> None:
    text = '{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]}'
    assert list(read_text(text)) == [{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}]


def test_a_text_like_a_time_stays_text() -> None:
    assert list(read_text("{kind: A, since: 2020-01-01, at: 2020-01-01T00:00:00Z}")) == [
        {"kind": "A", "since": "2020-01-01", "at": "2020-01-01T00:00:00Z"}
    ]


def test_namespaces_and_definitions_come_first_and_webhooks_last() -> None:
    kinds = ("ValidatingWebhookConfiguration", "Pod", "CustomResourceDefinition", "ConfigMap", "Namespace")
    assert [obj["kind"] for obj in in_order([{"kind": kind} for kind in kinds])] == [
        "Namespace",
        "CustomResourceDefinition",
        "Pod",
        "ConfigMap",
        "ValidatingWebhookConfiguration",
    ]


def test_a_folder_is_searched_for_manifests(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.yaml", "a.yml", "README.md", "sub/c.json"):
        (tmp_path / name).touch()
    assert [file.name for file in files_in(tmp_path)] == ["a.yml", "b.yaml", "c.json"]


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestError):
        files_in(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    ["{kind: A}\n---\n{kind: [", "just text", "{metadata: {name: a}}", "{kind: List, items: [1]}"],
)
def test_an_invalid_manifest_is_reported_with_its_place(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ManifestError):
        list(read_file(file))
