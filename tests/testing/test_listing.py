"""Lists: order, selectors, pages over one snapshot, versions that are asked for, and what is refused; as the
real server."""

import base64
import json

import pytest

from .asking import ALL_MAPS, MAPS, Asked, names


def token(version: int, start: str, word: str = "meta.k8s.io/v1") -> str:
    text = json.dumps({"v": word, "rv": version, "start": start})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


# ---- What is listed.


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a,", "found '', expected: identifier after ','"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a notin b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a notin ((", "unable to parse requirement: found '(', expected: ',', ')' or identifier"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "a>x",
            """unable to parse requirement: values[0]: Invalid value: "x": for 'Gt', 'Lt' operators, the value must be an integer""",  # The message is one line.  # noqa: E501
        ),
        ("/a", 'unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty'),
        (
            "a=" + 64 * "x",
            (
                f'unable to parse requirement: values[0][a]: Invalid value: "{64 * "x"}": must be no more'
                " than 63 bytes"
            ),
        ),
    ],
)
def test_a_label_selector_that_is_none_is_refused(api: Asked, selector: str, message: str) -> None:
    status = api.refused("GET", MAPS, query={"labelSelector": selector})
    assert (status["code"], status["reason"], status["message"]) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("selector", "start"),
    [
        ("-a", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of '),
        (
            "a/b/c",
            'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key must consist of ',
        ),
        ("a=-b", 'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be '),
        (
            "x,a in (-b)",
            'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be ',
        ),
    ],
)
def test_keys_and_values_that_no_label_has_are_refused(api: Asked, selector: str, start: str) -> None:
    status = api.refused("GET", MAPS, query={"labelSelector": selector})
    assert (status["code"], status["message"][: len(start)]) == (400, start)


# ---- Pages.


def test_pages_go_on_across_namespaces(api: Asked) -> None:
    api.create("apps", "apps-2", path="/api/v1/namespaces")
    for namespace in ("apps", "apps-2"):
        api.create("a", "b", path=f"/api/v1/namespaces/{namespace}/configmaps")
    seen, goes_on = [], ""
    for _ in range(4):
        page = api.get(ALL_MAPS, query={"limit": 1, "continue": goes_on})
        seen += [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in page["items"]]
        goes_on = page["metadata"].get("continue", "")
    assert (seen, goes_on) == (["apps-2/a", "apps-2/b", "apps/a", "apps/b"], "")


def test_a_name_is_one_object_only_where_its_namespace_is_clear(api: Asked) -> None:
    api.create("a", "b")
    api.create("a", path="/api/v1/namespaces/kube-system/configmaps")
    page = api.get(ALL_MAPS, query={"limit": 1, "fieldSelector": "metadata.name=a"})
    assert page["metadata"]["continue"]
    rest = {"limit": 1, "fieldSelector": "metadata.name=a", "continue": page["metadata"]["continue"]}
    assert [
        item["metadata"]["namespace"] for item in page["items"] + api.get(ALL_MAPS, query=rest)["items"]
    ] == ["default", "kube-system"]


# ---- Versions.


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "5", "continue": "abc"},
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            {"resourceVersionMatch": "Foo", "resourceVersion": "5"},
            'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""',
        ),
    ],
)
def test_matches_without_sense_are_invalid(api: Asked, query: dict[str, str], told: str) -> None:
    status = api.refused("GET", MAPS, query=query)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"] == f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {told}'
    assert status["details"]["kind"] == "ListOptions"
    assert status["details"]["causes"][0]["message"] == told


# ---- A replica that lags behind.


def test_a_replica_lists_the_state_it_has_seen(api: Asked) -> None:
    version = api.create("a")
    api.create("b")
    listed = api.get(MAPS, query={"resourceVersion": "0"}, seen=version)
    assert (names(listed), listed["metadata"]) == (["a"], {"resourceVersion": str(version)})


def test_a_replica_asks_for_the_current_state_if_no_version_is_given(api: Asked) -> None:
    version = api.create("a")
    later = api.create("b")
    listed = api.get(MAPS, seen=version)
    assert (names(listed), listed["metadata"]) == (["a", "b"], {"resourceVersion": str(later)})


def test_a_replica_lacks_a_version_it_has_not_seen(api: Asked) -> None:
    version = api.create("a")
    later = api.create("b")
    status = api.refused("GET", MAPS, query={"resourceVersion": later}, seen=version)
    assert (status["code"], status["message"]) == (
        504,
        f"Timeout: Too large resource version: {later}, current: {version}",
    )


# ---- What is no number, and what is no token.


@pytest.mark.parametrize("text", ["1_0", " 1", "\uff11", "", "+", "--1", "1.0", "0x10", "1e3"])
@pytest.mark.parametrize("option", ["limit", "timeoutSeconds"])
def test_numbers_are_read_as_go_reads_them(api: Asked, option: str, text: str) -> None:
    status = api.refused("GET", MAPS, query={option: text})
    assert (status["code"], status["message"]) == (400, f'strconv.ParseInt: parsing "{text}": invalid syntax')


def test_a_number_may_have_a_sign_and_zeros(api: Asked) -> None:
    api.create("a", "b")
    assert names(api.get(MAPS, query={"limit": "+01"})) == ["a"]
    assert names(api.get(MAPS, query={"limit": "-1"})) == ["a", "b"]


@pytest.mark.parametrize("digits", ["9" * 20, "1" * 5000])
def test_a_number_is_too_large_however_many_digits_it_has(api: Asked, digits: str) -> None:
    for option, start in (
        ("limit", "strconv.ParseInt"),
        ("resourceVersion", "invalid resource version: resourceVersion: Invalid value"),
    ):
        status = api.refused("GET", MAPS, query={option: digits})
        assert status["code"] == 400
        assert status["message"].startswith(start)
        assert status["message"].endswith(f'parsing "{digits}": value out of range')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"v":"meta.k8s.io/v1","rv":Infinity,"start":"a"}', ""),
        (
            '{"v":"meta.k8s.io/v1","rv":1.5,"start":"a"}',
            "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
        ),
        (
            '{"v":"meta.k8s.io/v1","rv":"5","start":"a"}',
            "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
        ),
        (
            '{"v":"meta.k8s.io/v1","rv":true,"start":"a"}',
            "json: cannot unmarshal bool into Go struct field continueToken.rv of type int64",
        ),
        (
            '{"v":5,"rv":5,"start":"a"}',
            "json: cannot unmarshal number into Go struct field continueToken.v of type string",
        ),
        ("[]", "json: cannot unmarshal array into Go value of type storage.continueToken"),
        ("null", "server does not recognize this encoded version "),
        (
            '{"v":"meta.k8s.io/v1","start":"a"}',
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        ('{"v":"meta.k8s.io/v1","rv":5}', "encoded start key empty (version meta.k8s.io/v1)"),
    ],
)
def test_an_invalid_token_is_refused_with_the_reason(api: Asked, text: str, why: str) -> None:
    sent = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    status = api.refused("GET", MAPS, query={"continue": sent})
    assert status["code"] == 400
    assert status["message"].startswith("invalid continue token: continue key is not valid: ")
    assert status["message"].endswith(why)


@pytest.mark.parametrize(("path", "expected"), [(MAPS, ["b", "a"]), (ALL_MAPS, ["b", "a", "b"])])
def test_a_token_from_before_all_begins_with_the_first(api: Asked, path: str, expected: list[str]) -> None:
    api.create("other", path="/api/v1/namespaces")
    api.create("b", "a")
    version = api.create("b", path="/api/v1/namespaces/other/configmaps")
    assert (
        names(api.get(path, query={"continue": token(version, "\0")})) == sorted(expected[:2]) + expected[2:]
    )
