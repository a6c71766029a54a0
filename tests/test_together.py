"""Several are listed as of the version of whoever is answered first."""
from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from kopf_selectcache.core.branches import Keys
from kopf_selectcache.core.merging import Merging
from kopf_selectcache.core.wire import Page, Refusal
from kopf_selectcache.together import REFUSED, Together, listed_together
from kopf_selectcache.transport import Refused, Unreachable
from tests.test_faults.world import run

NEWEST: Mapping[str, str] = {}


def exactly(version: str) -> Mapping[str, str]:
    return {"resourceVersion": version, "resourceVersionMatch": "Exact"}


class Server:
    """What is asked of it, and what it answers: a page of that version, the newest of which grows; or else what it is told to."""

    def __init__(self) -> None:
        self.version = 10
        self.asked: list[Mapping[str, str]] = []
        self.instead: list[Exception | Refusal | None] = []
        self.answering = asyncio.Event()
        self.answering.set()

    async def ask(self, as_of: Mapping[str, str]) -> Page | Refusal:
        self.asked.append(as_of)
        await self.answering.wait()
        self.version += 1
        match self.instead.pop(0) if self.instead else None:
            case Exception() as error:
                raise error
            case Refusal() as refusal:
                return refusal
        return Page(as_of.get("resourceVersion") or str(self.version), "", ())


def version_of(answer: Page | Refusal) -> str:
    assert isinstance(answer, Page)
    return answer.version


def test_whoever_comes_first_asks_for_the_newest_and_the_others_for_the_same() -> None:
    async def main() -> None:
        together, server = Together(), Server()
        server.answering.clear()
        listing = [asyncio.create_task(together.listed(server.ask)) for _ in range(3)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert server.asked == [NEWEST], "the others wait for the answer"
        server.answering.set()
        assert [version_of(answer) for answer in await asyncio.gather(*listing)] == ["11", "11", "11"]
        assert server.asked == [NEWEST, exactly("11"), exactly("11")]
    run(main())


@pytest.mark.parametrize("trouble", [Unreachable("the connection broke off"), Refused(Refusal(403)), Refusal(410)])
def test_where_the_first_is_not_answered_the_next_is_the_first(trouble: Exception | Refusal) -> None:
    async def main() -> None:
        together, server = Together(), Server()
        server.instead = [trouble]
        first, second, third = await asyncio.gather(*(together.listed(server.ask) for _ in range(3)), return_exceptions=True)
        assert first is trouble
        assert second == third == Page("12", "", ())
        assert server.asked == [NEWEST, NEWEST, exactly("12")]
    run(main())


def test_where_the_first_is_given_up_the_next_is_the_first() -> None:
    async def main() -> None:
        together, server = Together(), Server()
        server.answering.clear()
        first, second = (asyncio.create_task(together.listed(server.ask)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        server.answering.set()
        assert version_of(await second) == "11"
        assert server.asked == [NEWEST, NEWEST]
    run(main())


@pytest.mark.parametrize("code", sorted(REFUSED))
@pytest.mark.parametrize("as_answer", [True, False])
def test_where_the_version_is_refused_the_newest_will_do_and_is_what_others_ask_for(code: int, as_answer: bool) -> None:
    async def main() -> None:
        together, server = Together(), Server()
        await together.listed(server.ask)
        server.instead = [Refusal(code) if as_answer else Refused(Refusal(code))]
        assert version_of(await together.listed(server.ask)) == "13"
        assert version_of(await together.listed(server.ask)) == "13"
        assert server.asked == [NEWEST, exactly("11"), NEWEST, exactly("13")]
    run(main())


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 503])
def test_what_is_refused_for_another_reason_is_not_asked_for_again(code: int) -> None:
    async def main() -> None:
        together, server = Together(), Server()
        await together.listed(server.ask)
        server.instead = [Refused(Refusal(code))]
        assert await together.listed(server.ask) == Refusal(code)
        assert server.asked == [NEWEST, exactly("11")]
    run(main())


def test_only_those_that_could_hold_the_same_are_listed_together() -> None:
    shop, anywhere, infra, named = Keys(namespace="shop"), Keys(), Keys(namespace="infra"), Keys(namespace="infra", names=frozenset({"ca"}))
    one, other = listed_together(Merging([shop, infra]))
    assert one is other is None
    one, other, third = listed_together(Merging([shop, infra, named]))
    assert one is None
    assert other is third is not None
    assert len(set(listed_together(Merging([shop, anywhere, infra])))) == 1
    assert listed_together(Merging([anywhere])) == (None,)
