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


def test_a_list_has_the_version_of_the_whole_cluster(api: Asked) -> None:
    version = api.create("a")
    api.create("other", path="/api/v1/namespaces/default/secrets")
    assert api.get(MAPS)["metadata"] == {"resourceVersion": str(version + 1)}


def test_objects_are_listed_by_namespace_and_name_as_etcd_keeps_them(api: Asked) -> None:
    api.create("apps", "apps-2", path="/api/v1/namespaces")
    for namespace in ("apps", "apps-2", "default"):
        api.create("b", "a", path=f"/api/v1/namespaces/{namespace}/configmaps")
    listed = api.get(ALL_MAPS)["items"]
    assert [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed] == [
        ("apps-2", "a"),
        ("apps-2", "b"),
        ("apps", "a"),
        ("apps", "b"),
        ("default", "a"),
        ("default", "b"),
    ]


def test_a_list_of_a_namespace_holds_nothing_of_others(api: Asked) -> None:
    api.create("apps", "apps-2", path="/api/v1/namespaces")
    api.create("x", path="/api/v1/namespaces/apps-2/configmaps")
    assert names(api.get("/api/v1/namespaces/apps/configmaps")) == []


def test_a_namespace_that_is_not_there_is_an_empty_list(api: Asked) -> None:
    assert api.get("/api/v1/namespaces/nowhere/pods")["items"] == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"labelSelector": "i=1"}, ["a"]),
        ({"labelSelector": "i"}, ["a", "b"]),
        ({"labelSelector": "!i"}, ["c"]),
        ({"labelSelector": "i in (1,2),i!=1"}, ["b"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "metadata.name!=b"}, ["a", "c"]),
        ({"fieldSelector": "metadata.name=a,metadata.name=b"}, []),
        ({"fieldSelector": "metadata.namespace=default", "labelSelector": "i"}, ["a", "b"]),
        ({"fieldSelector": "metadata.namespace=other"}, []),
    ],
)
def test_selectors_select(api: Asked, query: dict[str, str], expected: list[str]) -> None:
    api.create("a", labels={"i": "1"})
    api.create("b", labels={"i": "2"})
    api.create("c")
    assert names(api.get(MAPS, query=query)) == expected


def test_custom_resources_are_selected_by_their_selectable_fields(api: Asked) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}},
    }
    api.define(schema={"openAPIV3Schema": schema}, selectableFields=[{"jsonPath": ".spec.color"}])
    api.widget("a", color="red")
    api.widget("b", color="blue")
    path = "/apis/example.com/v1/widgets"
    assert names(api.get(path, query={"fieldSelector": "spec.color=blue"})) == ["b"]
    assert (
        api.refused("GET", path, query={"fieldSelector": "spec.size=1"})["message"]
        == "field label not supported: spec.size"
    )


@pytest.mark.parametrize(
    ("path", "selector", "message"),
    [
        ("/api/v1/pods", "spec.x=1", "field label not supported: spec.x"),
        ("/api/v1/nodes", "metadata.namespace=x", "field label not supported: metadata.namespace"),
        ("/apis/batch/v1/jobs", "spec.x=1", 'field label "spec.x" not supported for Job'),
        (
            ALL_MAPS,
            "spec.x=1",
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("/api/v1/pods", "metadata.name=1,spec.y=1,spec.x=1", "field label not supported: spec.x"),
        ("/api/v1/pods", "spec.x", "invalid selector: 'spec.x'; can't understand 'spec.x'"),
        ("/api/v1/pods", "a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("/api/v1/pods", "a=b\\x", "invalid field selector: invalid escape sequence: \\x"),
    ],
)
def test_fields_that_a_kind_has_not_got_are_refused(
    api: Asked, path: str, selector: str, message: str
) -> None:
    for query in ({"fieldSelector": selector}, {"fieldSelector": selector, "watch": "1"}):
        status = api.refused("GET", path, query=query)
        assert (status["code"], status["reason"], status["message"]) == (400, "BadRequest", message)


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


def test_pages_go_on_over_the_snapshot_of_the_first(api: Asked) -> None:
    version = api.create("a", "b", "c", "d", "e")
    first = api.get(MAPS, query={"limit": 2})
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    api.create("bb", "z")
    api.delete("c")
    api.label("d", new="label")
    second = api.get(MAPS, query={"limit": 2, "continue": first["metadata"]["continue"]})
    assert (names(second), second["metadata"]["remainingItemCount"]) == (["c", "d"], 1)
    assert "labels" not in second["items"][1]["metadata"]
    third = api.get(MAPS, query={"limit": 2, "continue": second["metadata"]["continue"]})
    assert names(third) == ["e"]
    assert third["metadata"] == {"resourceVersion": str(version)}


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


def test_pages_of_a_cluster_scoped_kind_go_on(api: Asked) -> None:
    first = api.get("/api/v1/namespaces", query={"limit": 3})
    second = api.get("/api/v1/namespaces", query={"limit": 3, "continue": first["metadata"]["continue"]})
    assert names(first) + names(second) == ["default", "kube-node-lease", "kube-public", "kube-system"]


def test_with_selectors_the_rest_is_neither_counted_nor_checked_against_them(api: Asked) -> None:
    api.create("a", labels={"i": "1"})
    api.create("b")
    first = api.get(MAPS, query={"limit": 1, "labelSelector": "i"})
    assert set(first["metadata"]) == {"resourceVersion", "continue"}
    second = api.get(
        MAPS, query={"limit": 1, "labelSelector": "i", "continue": first["metadata"]["continue"]}
    )
    assert (second["items"], set(second["metadata"])) == ([], {"resourceVersion"})


def test_a_page_that_holds_all_says_that_nothing_follows(api: Asked) -> None:
    api.create("a", "b")
    assert set(api.get(MAPS, query={"limit": 2})["metadata"]) == {"resourceVersion"}
    assert set(api.get(MAPS, query={"limit": 1, "fieldSelector": "metadata.name=a"})["metadata"]) == {
        "resourceVersion"
    }


def test_a_name_is_one_object_only_where_its_namespace_is_clear(api: Asked) -> None:
    api.create("a", "b")
    api.create("a", path="/api/v1/namespaces/kube-system/configmaps")
    page = api.get(ALL_MAPS, query={"limit": 1, "fieldSelector": "metadata.name=a"})
    assert page["metadata"]["continue"]
    rest = {"limit": 1, "fieldSelector": "metadata.name=a", "continue": page["metadata"]["continue"]}
    assert [
        item["metadata"]["namespace"] for item in page["items"] + api.get(ALL_MAPS, query=rest)["items"]
    ] == ["default", "kube-system"]


def test_an_expired_token_is_gone_with_one_for_the_rest_as_it_is_now(api: Asked) -> None:
    api.create("a", "b", "c")
    first = api.get(MAPS, query={"limit": 2})
    api.create("aa", "d")
    version = api.api.history.compact()
    status = api.refused("GET", MAPS, query={"limit": 2, "continue": first["metadata"]["continue"]})
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith(
        "The provided continue parameter is too old to display a consistent list result."
    )
    rest = api.get(MAPS, query={"limit": 2, "continue": status["metadata"]["continue"]})
    assert (names(rest), rest["metadata"]) == (["c", "d"], {"resourceVersion": str(version)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("abc", None),
        (token(0, "a\0"), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (token(1, ""), "encoded start key empty (version meta.k8s.io/v1)"),
        (token(1, "a\0", "v2"), "server does not recognize this encoded version v2"),
    ],
)
def test_an_invalid_continue_token_is_refused(api: Asked, given: str, message: str | None) -> None:
    status = api.refused("GET", MAPS, query={"continue": given})
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    start = "invalid continue token: continue key is not valid: "
    assert status["message"].startswith(start)
    assert message is None or status["message"] == start + message


# ---- Versions.


def test_exact_lists_the_objects_of_that_version(api: Asked) -> None:
    version = api.create("a")
    api.create("b")
    api.delete("a")
    then = api.get(MAPS, query={"resourceVersion": version, "resourceVersionMatch": "Exact"})
    assert (names(then), then["metadata"]) == (["a"], {"resourceVersion": str(version)})


def test_a_version_with_a_limit_means_exactly_that_one(api: Asked) -> None:
    version = api.create("a")
    api.create("b")
    assert names(api.get(MAPS, query={"resourceVersion": version, "limit": 5})) == ["a"]
    assert names(
        api.get(MAPS, query={"resourceVersion": version, "limit": 5, "fieldSelector": "metadata.name=b"})
    ) == ["b"]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"resourceVersion": ""},
        {"resourceVersion": "0"},
        {"resourceVersion": "1"},
        {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"},
        {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan", "limit": "5"},
        {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"},
        {"limit": "5"},
    ],
)
def test_all_other_lists_are_of_now(api: Asked, query: dict[str, str]) -> None:
    version = api.create("a", "b")
    listed = api.get(MAPS, query=query)
    assert (names(listed), listed["metadata"]) == (["a", "b"], {"resourceVersion": str(version)})


def test_a_list_from_memory_comes_in_one_page(api: Asked) -> None:
    api.create("a", "b", "c")
    listed = api.get(MAPS, query={"resourceVersion": "0", "limit": 1})
    assert (names(listed), set(listed["metadata"])) == (["a", "b", "c"], {"resourceVersion"})


@pytest.mark.parametrize("more", [{"resourceVersionMatch": "Exact"}, {"limit": "1"}])
def test_a_forgotten_version_is_gone(api: Asked, more: dict[str, str]) -> None:
    version = api.create("a")
    api.create("b")
    api.api.history.compact()
    status = api.refused("GET", MAPS, query={"resourceVersion": version, **more})
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"] == "The resourceVersion for the provided list is too old."


@pytest.mark.parametrize(
    "more", [{}, {"resourceVersionMatch": "Exact"}, {"resourceVersionMatch": "NotOlderThan", "limit": "2"}]
)
def test_a_version_that_has_not_come_is_a_timeout(api: Asked, more: dict[str, str]) -> None:
    version = api.create("a")
    answer = api.ask("GET", MAPS, query={"resourceVersion": "99999", **more})
    assert (answer.code, answer.headers) == (504, {"Retry-After": "1"})
    status = json.loads(answer.body)
    assert (status["reason"], status["message"]) == (
        "Timeout",
        f"Timeout: Too large resource version: 99999, current: {version}",
    )
    assert status["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


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


def test_initial_events_are_for_watches(api: Asked) -> None:
    status = api.refused("GET", MAPS, query={"sendInitialEvents": "true"})
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, "sendInitialEvents")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"limit": ""}, 'strconv.ParseInt: parsing "": invalid syntax'),
        ({"limit": "9" * 20}, f'strconv.ParseInt: parsing "{"9" * 20}": value out of range'),
        ({"timeoutSeconds": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"resourceVersion": "x"},
            (
                'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing'
                ' "x": invalid syntax'
            ),
        ),
        (
            {"resourceVersion": "-1"},
            (
                'invalid resource version: resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing'
                ' "-1": invalid syntax'
            ),
        ),
    ],
)
def test_an_invalid_number_is_refused(api: Asked, query: dict[str, str], message: str) -> None:
    status = api.refused("GET", MAPS, query=query)
    assert (status["code"], status["reason"], status["message"]) == (400, "BadRequest", message)


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
