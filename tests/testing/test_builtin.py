"""The table of built-in kinds, and what kubectl prints of them."""

from tests.rows import each_row

from .writing import Store

STORE = Store()


@each_row(
    ("kind", "singular", "short", "namespaced"),
    [
        ("pods", "pod", ("po",), True),
        ("namespaces", "namespace", ("ns",), False),
        ("endpoints", "endpoints", ("ep",), True),
        ("jobs.batch", "job", (), True),
        (
            "customresourcedefinitions.apiextensions.k8s.io",
            "customresourcedefinition",
            ("crd", "crds"),
            False,
        ),
    ],
)
def test_kinds_are_served_under_their_names(
    kind: str, singular: str, short: tuple[str, ...], *, namespaced: bool
) -> None:
    served = STORE.kind(kind)
    assert (served.singular, served.short_names, served.namespaced) == (singular, short, namespaced)


def test_both_groups_of_events_share_one_table() -> None:
    assert STORE.kind("events").table == STORE.kind("events.events.k8s.io").table
    tables = [served.table for served in STORE.kinds]
    assert len(tables) == len(set(tables)) + 1
