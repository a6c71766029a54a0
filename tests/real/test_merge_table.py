"""The tables of fields against their generators, which read Kubernetes' own schema."""

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kopf_selectcache.testing.api import _known_fields, _merge_table
from tests.apiserver import known_fields, merge_types
from tests.apiserver.build import Go, NoServer, kubernetes_version
from tests.apiserver.merge_types import source, types_of
from tests.conftest import without_server


@pytest.mark.since("1.36", "the table is that of Kubernetes 1.36")
@pytest.mark.parametrize(
    ("written", "table"),
    [(merge_types.written, _merge_table), (known_fields.written, _known_fields)],
    ids=["merge table", "known fields"],
)
def test_the_generated_table_is_the_output_of_the_generator(
    written: Callable[..., str], table: ModuleType
) -> None:
    try:
        go = Go.find()
    except NoServer as reason:
        without_server(str(reason))
    # `make merge-types` formats the text as well, which a syntax tree does not show.
    generated = written(types_of(source(go).read_text()), kubernetes_version())
    kept = Path(str(table.__file__)).read_text()
    assert ast.unparse(ast.parse(kept)) == ast.unparse(ast.parse(generated))
