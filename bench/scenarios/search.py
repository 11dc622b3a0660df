"""Search: how long it takes over many messages."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from itertools import accumulate

import aiohttp

from bench.measuring import NS_PER_MS
from bench.rows import Row
from bench.server import Server
from bench.stage import Stage
from bench.world import Person, World

MESSAGES = 1_000_000
CHATS = 100
WORDS = 20_000
WORDS_EACH = 8
SEARCHES = 300
POLL_SECONDS = 0.25
SEED = 15
ON = {"PARLEY_SEARCH_ENABLED": "true"}


class Vocabulary:
    """Words as people use them: few of them often, most of them seldom."""

    def __init__(self) -> None:
        self._chance = random.Random(SEED)
        self._words = [self._made() for _ in range(WORDS)]
        self._weights = list(accumulate(1 / (rank + 10) for rank in range(WORDS)))

    def _made(self) -> str:
        return "".join(
            self._chance.choice("abcdefghijklmnoprstuvw") for _ in range(self._chance.randint(3, 9))
        )

    def _drawn(self, count: int) -> list[str]:
        return self._chance.choices(self._words, cum_weights=self._weights, k=count)

    def text(self) -> str:
        return " ".join(self._drawn(WORDS_EACH))

    def queries(self, kind: str) -> list[str]:
        """What is searched for: common words as often as they are used."""
        drawn = self._drawn(2 * SEARCHES)
        if kind == "prefix":
            return [word[:3] + "*" for word in drawn[:SEARCHES]]
        if kind == "two words":
            return [" ".join(pair) for pair in zip(drawn[::2], drawn[1::2], strict=True)]
        return drawn[:SEARCHES]


async def searches(stage: Stage) -> list[Row]:
    """One client searches, one search after the other, once everything is indexed."""
    messages, words = stage.pick(MESSAGES, MESSAGES // 20), Vocabulary()

    async def populate(world: World) -> tuple[Person, list[str]]:
        (person,) = await world.people(1)
        chats = [await world.group([person]) for _ in range(CHATS)]
        for chat_id in chats:
            await world.fill(chat_id, person, messages // CHATS, words.text)
        return person, chats

    rows: list[Row] = []
    async with stage.serving(populate, ON) as (server, (person, chats)):
        began = time.perf_counter()
        await _until_indexed(server, messages)
        rate = messages / (time.perf_counter() - began)
        rows.append(
            Row(name="search_index", label=f"{messages:,} messages indexed", unit="entries/s", value=rate)
        )
        headers = {"Authorization": f"Bearer {person.token}"}
        base = f"http://{server.address.host}:{server.address.port}/v1"
        async with aiohttp.ClientSession(headers=headers) as session:
            for kind in ("one word", "two words", "prefix"):
                for where, path in (("one chat", f"chats/{chats[0]}/search"), ("all chats", "search")):
                    taken = [
                        await _searched(session, f"{base}/{path}", query) for query in words.queries(kind)
                    ]
                    rows.append(_row(kind, where, messages, taken))
    return rows


async def _until_indexed(server: Server, messages: int) -> None:
    while (await server.metrics()).get("parley_search_entries_indexed_total", 0) < messages:  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)


async def _searched(session: aiohttp.ClientSession, url: str, query: str) -> int:
    began = time.perf_counter_ns()
    async with session.get(url, params={"q": query}) as answer:
        body = await answer.read()
        assert answer.status == 200, body
    return time.perf_counter_ns() - began


def _row(kind: str, where: str, messages: int, taken_ns: list[int]) -> Row:
    p99 = statistics.quantiles(taken_ns, n=100)[98] / NS_PER_MS
    return Row(
        name=f"search_{kind}_{where}".replace(" ", "_"),
        label=f"search, {kind}, {where} of {messages:,} messages, p99",
        unit="ms",
        value=p99,
        p50_ms=statistics.median(taken_ns) / NS_PER_MS,
        p99_ms=p99,
    )
