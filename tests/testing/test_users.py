"""Who asks: tokens, what they live and die with, and what stands in them."""

import base64
import datetime as dt
import json
from typing import Any

import pytest

from kopf_selectcache.testing.api.request import User
from kopf_selectcache.testing.api.status import Problem
from kopf_selectcache.testing.api.users import ISSUER, Bound, Issued

from .environment import Environment

DAY = dt.timedelta(days=1)


@pytest.fixture
def environment() -> Environment:
    environment = Environment()
    environment.create("", "serviceaccounts", "sa", "ns")
    environment.create("", "secrets", "s", "ns")
    return environment


def issue(
    environment: Environment,
    *,
    bound: bool = False,
    kind: str = "Secret",
    name: str = "s",
    audiences: tuple[str, ...] = (ISSUER,),
) -> Issued:
    account = environment.users.find("ServiceAccount", "ns", "sa")
    assert account is not None
    thing = environment.users.find(kind, "ns", name)
    assert thing is not None
    return environment.users.issue(
        "ns",
        account,
        audiences=audiences,
        lifetime=DAY,
        bound=Bound(kind, name, thing.uid) if bound else None,
    )


def who(environment: Environment, header: str) -> User:
    return environment.users.authenticate({"authorization": header})


def is_refused(environment: Environment, token: str) -> bool:
    try:
        who(environment, f"Bearer {token}")
    except Problem as problem:
        return (problem.code, problem.reason, problem.message, problem.details) == (
            401,
            "Unauthorized",
            "Unauthorized",
            None,
        )
    return False


# ---- The header.


@pytest.mark.parametrize(
    "header", ["Bearer admin-token", "bearer admin-token", "Bearer admin-token ", "Bearer admin-token x"]
)
def test_the_token_is_the_word_after_bearer(environment: Environment, header: str) -> None:
    assert who(environment, header).name == "admin"


# ---- Tokens of service accounts.


def test_two_tokens_of_one_account_differ(environment: Environment) -> None:
    assert issue(environment).token != issue(environment).token


def test_a_token_says_whose_it_is_and_for_how_long(environment: Environment) -> None:
    issued = issue(environment, bound=True)
    claims = _claims(issued.token)
    assert (claims["sub"], claims["aud"], claims["iss"]) == ("system:serviceaccount:ns:sa", [ISSUER], ISSUER)
    assert (claims["iat"], claims["exp"]) == (
        environment.time.timestamp(),
        (environment.time + DAY).timestamp(),
    )
    assert issued.bound is not None
    assert claims["kubernetes.io"] == {
        "namespace": "ns",
        "secret": {"name": "s", "uid": issued.bound.uid},
        "serviceaccount": {"name": "sa", "uid": issued.user.uid},
    }
    assert issued.user.extra["authentication.kubernetes.io/credential-id"] == (f"JTI={claims['jti']}",)


def test_a_token_expires(environment: Environment) -> None:
    token = issue(environment).token
    environment.time += DAY - dt.timedelta(seconds=1)
    assert not is_refused(environment, token)
    environment.time += dt.timedelta(seconds=1)
    assert is_refused(environment, token)


def test_a_bound_token_dies_with_its_secret_and_the_next_of_that_name_does_not_revive_it(
    environment: Environment,
) -> None:
    bound, free = issue(environment, bound=True).token, issue(environment).token
    environment.delete("", "secrets", "s", "ns")
    assert is_refused(environment, bound)
    assert not is_refused(environment, free)
    environment.create("", "secrets", "s", "ns")
    assert is_refused(environment, bound)


def test_a_token_dies_with_its_account_and_the_next_of_that_name_does_not_revive_it(
    environment: Environment,
) -> None:
    token = issue(environment).token
    environment.delete("", "serviceaccounts", "sa", "ns")
    assert is_refused(environment, token)
    environment.create("", "serviceaccounts", "sa", "ns")
    assert is_refused(environment, token)


def test_a_token_that_is_bound_to_a_pod_names_it(environment: Environment) -> None:
    environment.create(
        "", "pods", "p", "ns", spec={"serviceAccountName": "sa", "containers": [{"name": "c", "image": "i"}]}
    )
    issued = issue(environment, bound=True, kind="Pod", name="p")
    assert issued.bound is not None
    extra = who(environment, f"Bearer {issued.token}").extra
    assert extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert extra["authentication.kubernetes.io/pod-uid"] == (issued.bound.uid,)


def test_a_token_for_others_to_read_is_none_for_the_server(environment: Environment) -> None:
    assert is_refused(environment, issue(environment, audiences=("vault",)).token)
    assert not is_refused(environment, issue(environment, audiences=("vault", ISSUER)).token)


def _claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims
