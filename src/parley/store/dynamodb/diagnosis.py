"""What `parley doctor` says of tables: where they are, how fast they answer, and whether they are right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime

import aiohttp

from parley.clock import CLOCK_MS_OFF_MAX, MS_PER_SECOND, Clock, wall_clock
from parley.store.dynamodb.driver import Dynamo
from parley.store.dynamodb.schema import TABLES, VERSION, check_tables, is_recoverable
from parley.store.rows import Finding

ANSWER_SECONDS_MAX = 5.0
ROUND_TRIPS_MEASURED = 5
SLOW_MS = 25.0


async def diagnose(dynamo: Dynamo, clock: Clock = wall_clock) -> AsyncIterator[Finding]:
    """`clock`: that of this machine, with which requests are signed."""
    await dynamo.open()
    await dynamo.check()
    milliseconds = await _round_trip_ms(dynamo)
    says = f"{dynamo.endpoint}, region {dynamo.region}, {milliseconds:.1f} ms to answer"
    if milliseconds > SLOW_MS:
        yield Finding("look", "DynamoDB", says, "nodes should run in the region of their tables")
    else:
        yield Finding("ok", "DynamoDB", says)
    off_ms = await _clock_off_ms(dynamo.endpoint, clock)
    if abs(off_ms) > CLOCK_MS_OFF_MAX:  # then DynamoDB refuses what is signed here
        says = f"DynamoDB's differs by {off_ms / MS_PER_SECOND:.0f} s"
        yield Finding("wrong", "clock", says, "let this machine follow NTP")
    await check_tables(dynamo)
    yield Finding("ok", "tables", f"{len(TABLES)} as they should be, version {VERSION}")
    if await is_recoverable(dynamo) is False:
        remedy = "point-in-time recovery brings them back after a mistake; run: parley store init"
        yield Finding("look", "tables", "have no point-in-time recovery", remedy)


async def _round_trip_ms(dynamo: Dynamo) -> float:
    time = asyncio.get_running_loop().time
    started = time()
    for _ in range(ROUND_TRIPS_MEASURED):
        await dynamo.check()
    return (time() - started) * MS_PER_SECOND / ROUND_TRIPS_MEASURED


async def _clock_off_ms(url: str, clock: Clock) -> int:
    """How far ahead the clock of a server is; 0 if it does not tell the time."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as answer:
        date = answer.headers.get("Date")
    return 0 if date is None else int(parsedate_to_datetime(date).timestamp() * MS_PER_SECOND) - clock()
