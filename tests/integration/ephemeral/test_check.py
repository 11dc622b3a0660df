"""`check_redis`: what an operator is told about a Redis that cannot be used, and about one that can."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from parley.clock import wall_clock
from parley.ephemeral.redis.check import check_redis
from parley.errors import ConfigError
from tests.services import redis_url

HELLO = b"%1\r\n$5\r\nproto\r\n:3\r\n"


@asynccontextmanager
async def pretender(info: str = "", says: bytes | None = None) -> AsyncIterator[str]:
    """A server that answers all commands with one line, or says of itself what a Redis would; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = [await read_word(reader) for _ in range(int(line[1:]))]
            writer.write(says or answer_to(words[0].upper(), info))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


async def read_word(reader: asyncio.StreamReader) -> bytes:
    size = int((await reader.readline())[1:])
    return (await reader.readexactly(size + 2))[:-2]


def answer_to(command: bytes, info: str) -> bytes:
    if command == b"HELLO":
        return HELLO
    if command == b"INFO":
        return b"$%d\r\n%s\r\n" % (len(info), info.encode())
    return b"+OK\r\n"


async def problem_with(url: str) -> str:
    with pytest.raises(ConfigError) as caught:
        await check_redis(url)
    said = str(caught.value)
    assert "\n" not in said
    assert "hush" not in said
    return said


async def test_what_is_told_of_one_that_can_be_used() -> None:
    """Its kind and version, what it keeps on disk, what it does when it is full, and its time."""
    facts = await check_redis(redis_url())
    assert facts.product in ("Redis", "Valkey")
    assert facts.version.count(".") >= 1
    assert facts.persistence == "append-only file"
    assert abs(facts.clock_ms - wall_clock()) < 10_000


async def test_nobody_there() -> None:
    """An address where nothing listens, and a name that does not exist, do not answer."""
    for address in ("127.0.0.1:1", "redis.invalid:6379"):
        said = await problem_with(f"redis://:hush@{address}/0")
        assert said.startswith(f"Redis at {address} does not answer: start it, or correct redis.url")


async def test_a_wrong_password() -> None:
    """It says that the password is wrong, and does not show it."""
    said = await problem_with(redis_url().replace("redis://", "redis://ann:hush@"))
    assert "does not accept this user and password" in said


async def test_a_missing_right() -> None:
    """A user who may not run scripts is told so."""
    async with Redis.from_url(redis_url()) as redis:
        await redis.acl_setuser("bounded", enabled=True, passwords=["+hush"], commands=["+info", "+client"])
        try:
            said = await problem_with(redis_url().replace("redis://", "redis://bounded:hush@"))
        finally:
            await redis.acl_deluser("bounded")
    assert "does not allow this user a command that Parley needs" in said


@pytest.mark.parametrize("url", ["http://:hush@host", "redis://:hush@host:port", "hush"])
async def test_an_address_that_is_none(url: str) -> None:
    """What is not an address of a Redis is answered with what one looks like."""
    assert await problem_with(url) == "redis.url must be like redis://host:6379/0 or rediss://host:6379/0"


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ("redis_version:5.0.14\r\nrole:master", "Redis 5.0.14 at {} is too old: 7.0 or newer is needed"),
        ("redis_version:7.2.4\r\nrole:slave", "Redis at {} is a replica: name its primary in redis.url"),
        (
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:cluster",
            "Valkey at {} is a cluster of shards: a single primary is needed",
        ),
        (
            "redis_version:7.2.4\r\nrole:master\r\nloading:1",
            "Redis at {} is still loading its data: start again when it is done",
        ),
    ],
)
async def test_one_that_says_itself_why_not(info: str, says: str) -> None:
    """Too old, a replica, a part of a cluster, or not ready: each in a sentence of its own."""
    async with pretender(info) as url:
        assert await problem_with(url) == says.format(url[8:-2])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"-ERR unknown command 'HELLO'\r\n", "is too old: 7.0 or newer is needed"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "is still loading its data"),
        (b"-MISCONF Errors writing to the AOF file\r\n", "cannot be used: "),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "cannot be used: "),
    ],
)
async def test_one_that_refuses_everything(line: bytes, says: str) -> None:
    """What it answers to all commands is understood, or passed on."""
    async with pretender(says=line) as url:
        assert says in await problem_with(url)
