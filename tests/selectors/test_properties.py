"""Laws that hold for all selectors and all valid objects, with counter-examples searched for by
hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kopf_selectcache import AnyOf, FieldSelector, LabelSelector, Selector
from kopf_selectcache.types import Answer

# What a run explores is fixed, so that one who changes nothing sees nothing new.
laws = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)

KEYS = st.sampled_from(["app", "tier", "example.com/n"])
VALUES = st.sampled_from(["", "a", "b", "5", "05", "6", "7", "9223372036854775808"])
FIELDS = st.sampled_from(["spec.nodeName", "metadata.name", "metadata.namespace", "status.phase"])
NAMES = st.sampled_from(["a", "b", "c"])
PLAIN = st.text(alphabet="ab,=\\! é", max_size=4)

label_requirements = st.one_of(
    KEYS,
    KEYS.map("!{}".format),
    st.builds("{}{}{}".format, KEYS, st.sampled_from(["=", "==", "!="]), VALUES),
    st.builds(
        "{} {} ({})".format,
        KEYS,
        st.sampled_from(["in", "notin"]),
        st.lists(VALUES, max_size=3).map(",".join),
    ),
    st.builds("{}{}{}".format, KEYS, st.sampled_from(["<", ">"]), st.sampled_from(["0", "5", "06", "7"])),
)
label_texts = st.lists(label_requirements, max_size=4).map(",".join)
field_dicts = st.dictionaries(FIELDS, st.one_of(NAMES, st.just("")), min_size=1, max_size=2)
field_texts = st.lists(
    st.builds("{}{}{}".format, FIELDS, st.sampled_from(["=", "!="]), st.one_of(NAMES, st.just(""))),
    max_size=3,
).map(",".join)
selectors = st.builds(
    Selector,
    st.one_of(st.none(), label_texts, st.dictionaries(KEYS, VALUES, min_size=1, max_size=2)),
    fields=st.one_of(st.none(), field_texts, field_dicts),
    names=st.one_of(st.none(), st.lists(NAMES, min_size=1, max_size=2)),
    namespaces=st.one_of(st.none(), st.lists(NAMES, min_size=1, max_size=2)),
)
filters = st.one_of(selectors, st.builds(AnyOf, st.lists(selectors, min_size=2, max_size=3)))
objects = st.fixed_dictionaries(
    {
        "name": NAMES,
        "namespace": st.one_of(NAMES, st.just("")),
        "labels": st.dictionaries(KEYS, VALUES, max_size=3),
        "fields": st.dictionaries(
            st.sampled_from(["spec.nodeName", "status.phase"]), st.one_of(NAMES, st.just("")), max_size=2
        ),
    }
)


@laws
@given(filters, filters, objects)
def test_objects_of_covered_requests_match(
    declared: Selector | AnyOf, request: Selector | AnyOf, an_object: dict[str, Any]
) -> None:
    if request.matches(**an_object):
        assert declared.matches(**an_object) or declared.covers(request).answer is Answer.NO
        assert not (declared.matches(**an_object) and declared.disjoint(request))


@laws
@given(filters, filters)
def test_the_witness_is_asked_for_and_not_held(declared: Selector | AnyOf, request: Selector | AnyOf) -> None:
    verdict = declared.covers(request)
    assert verdict.answer is not Answer.UNKNOWN
    assert (verdict.witness is None) == bool(verdict)
    if (witness := verdict.witness) is not None:
        point: dict[str, Any] = {
            "name": witness.name,
            "namespace": witness.namespace,
            "labels": witness.labels,
            "fields": witness.fields,
        }
        assert request.matches(**point)
        assert not declared.matches(**point)


@laws
@given(filters, filters)
def test_the_narrowest_request_is_covered_and_nothing_new(
    declared: Selector | AnyOf, request: Selector | AnyOf
) -> None:
    verdict = declared.covers(request)
    narrowest = verdict.narrowest
    assert (narrowest is None) == declared.disjoint(request)
    if narrowest is not None:
        assert declared.covers(narrowest).answer is Answer.YES
        assert request.covers(narrowest).answer is Answer.YES
        assert narrowest.contradiction() is None


@laws
@given(label_texts, st.dictionaries(KEYS, VALUES, max_size=3))
def test_a_label_selector_survives_its_own_text(text: str, labels: dict[str, str]) -> None:
    parsed = LabelSelector.parse(text)
    again = LabelSelector.parse(str(parsed))
    assert again == parsed
    assert hash(again) == hash(parsed)
    assert again.matches(labels) == parsed.matches(labels)


@laws
@given(
    st.dictionaries(st.text(alphabet="ab.é ", min_size=1, max_size=3), PLAIN, min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["a", "b"]), PLAIN),
)
def test_a_field_selector_survives_its_own_text(given_: dict[str, str], fields: dict[str, str]) -> None:
    made = FieldSelector.from_dict(given_)
    again = FieldSelector.parse(str(made))
    assert again == made
    assert hash(again) == hash(made)
    assert again.matches(fields) == made.matches(fields)
    assert again.matches(given_)
