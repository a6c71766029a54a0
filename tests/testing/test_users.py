"""Who asks: tokens, what they live and die with, and what stands in them."""

import base64
import datetime as dt
import json
from typing import Any

import pytest

from kopf_selectcache.testing.api.request import User
from kopf_selectcache.testing.api.status import Problem
from kopf_selectcache.testing.api.users import ANONYMOUS, ISSUER, Bound, Issued

from .world import World

DAY = dt.timedelta(days=1)


@pytest.fixture
def world() -> World:
    world = World()
    world.create("", "serviceaccounts", "sa", "ns")
    world.create("", "secrets", "s", "ns")
    return world


def issue(
    world: World,
    *,
    bound: bool = False,
    kind: str = "Secret",
    name: str = "s",
    audiences: tuple[str, ...] = (ISSUER,),
) -> Issued:
    account = world.users.find("ServiceAccount", "ns", "sa")
    assert account is not None
    thing = world.users.find(kind, "ns", name)
    assert thing is not None
    return world.users.issue(
        "ns",
        account,
        audiences=audiences,
        lifetime=DAY,
        bound=Bound(kind, name, thing.uid) if bound else None,
    )


def who(world: World, header: str) -> User:
    return world.users.authenticate({"authorization": header})


def is_refused(world: World, token: str) -> bool:
    try:
        who(world, f"Bearer {token}")
    except Problem as problem:
        return (problem.code, problem.reason, problem.message, problem.details) == (
            401,
            "Unauthorized",
            "Unauthorized",
            None,
        )
    return False


# ---- The header.


def test_without_a_token_one_is_anonymous(world: World) -> None:
    assert world.users.authenticate({}) == ANONYMOUS
    for header in ("", "Bearer", "Bearer ", "Basic eDp5", "Token admin-token", "Bearer  admin-token"):
        assert who(world, header) == ANONYMOUS, header
    assert (ANONYMOUS.name, ANONYMOUS.groups) == ("system:anonymous", ("system:unauthenticated",))


@pytest.mark.parametrize(
    "header", ["Bearer admin-token", "bearer admin-token", "Bearer admin-token ", "Bearer admin-token x"]
)
def test_the_token_is_the_word_after_bearer(world: World, header: str) -> None:
    assert who(world, header).name == "admin"


def test_an_unknown_token_is_refused(world: World) -> None:
    assert is_refused(world, "nonsense")


# ---- Tokens that were named.


def test_the_admin_is_a_master(world: World) -> None:
    assert who(world, "Bearer admin-token") == User(
        "admin", ("system:masters", "system:authenticated"), "admin"
    )


def test_a_named_token_is_valid_until_it_is_revoked(world: World) -> None:
    world.users.add("token", User("jane", ("team",)))
    assert who(world, "Bearer token") == User("jane", ("team", "system:authenticated"))
    world.users.revoke("token")
    assert is_refused(world, "token")


# ---- Tokens of service accounts.


def test_a_token_makes_its_bearer_the_account(world: World) -> None:
    user = who(world, f"Bearer {issue(world).token}")
    account = world.users.find("ServiceAccount", "ns", "sa")
    assert account is not None
    assert user.name == "system:serviceaccount:ns:sa"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    assert user.uid == account.uid
    assert list(user.extra) == ["authentication.kubernetes.io/credential-id"]


def test_two_tokens_of_one_account_differ(world: World) -> None:
    assert issue(world).token != issue(world).token


def test_a_token_says_whose_it_is_and_for_how_long(world: World) -> None:
    issued = issue(world, bound=True)
    claims = _claims(issued.token)
    assert (claims["sub"], claims["aud"], claims["iss"]) == ("system:serviceaccount:ns:sa", [ISSUER], ISSUER)
    assert (claims["iat"], claims["exp"]) == (world.time.timestamp(), (world.time + DAY).timestamp())
    assert issued.bound is not None
    assert claims["kubernetes.io"] == {
        "namespace": "ns",
        "secret": {"name": "s", "uid": issued.bound.uid},
        "serviceaccount": {"name": "sa", "uid": issued.user.uid},
    }
    assert issued.user.extra["authentication.kubernetes.io/credential-id"] == (f"JTI={claims['jti']}",)


def test_a_token_expires(world: World) -> None:
    token = issue(world).token
    world.time += DAY - dt.timedelta(seconds=1)
    assert not is_refused(world, token)
    world.time += dt.timedelta(seconds=1)
    assert is_refused(world, token)


def test_a_bound_token_dies_with_its_secret_and_the_next_of_that_name_does_not_revive_it(
    world: World,
) -> None:
    bound, free = issue(world, bound=True).token, issue(world).token
    world.delete("", "secrets", "s", "ns")
    assert is_refused(world, bound)
    assert not is_refused(world, free)
    world.create("", "secrets", "s", "ns")
    assert is_refused(world, bound)


def test_a_token_dies_with_its_account_and_the_next_of_that_name_does_not_revive_it(world: World) -> None:
    token = issue(world).token
    world.delete("", "serviceaccounts", "sa", "ns")
    assert is_refused(world, token)
    world.create("", "serviceaccounts", "sa", "ns")
    assert is_refused(world, token)


def test_a_token_that_is_bound_to_a_pod_names_it(world: World) -> None:
    world.create(
        "", "pods", "p", "ns", spec={"serviceAccountName": "sa", "containers": [{"name": "c", "image": "i"}]}
    )
    issued = issue(world, bound=True, kind="Pod", name="p")
    assert issued.bound is not None
    extra = who(world, f"Bearer {issued.token}").extra
    assert extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert extra["authentication.kubernetes.io/pod-uid"] == (issued.bound.uid,)


def test_a_token_for_others_to_read_is_none_for_the_server(world: World) -> None:
    assert is_refused(world, issue(world, audiences=("vault",)).token)
    assert not is_refused(world, issue(world, audiences=("vault", ISSUER)).token)


def _claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims
