"""The table of server-side apply against its generator, which reads Kubernetes' own schema."""

import ast
from pathlib import Path

import pytest

from kopf_selectcache.testing.api import _merge_table
from tests.apiserver.build import Go, NoServer, kubernetes_version
from tests.apiserver.merge_types import source, types_of, written
from tests.conftest import without_server


@pytest.mark.since("1.36", "the table is that of Kubernetes 1.36")
def test_the_generated_table_is_what_the_generator_gives() -> None:
    try:
        go = Go.find()
    except NoServer as reason:
        without_server(str(reason))
    # `make merge-types` formats the text as well, which a syntax tree does not show.
    generated = written(types_of(source(go).read_text()), kubernetes_version())
    kept = Path(_merge_table.__file__).read_text()
    assert ast.unparse(ast.parse(kept)) == ast.unparse(ast.parse(generated))
