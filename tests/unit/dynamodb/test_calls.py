"""Many requests at once, and writes that may be repeated."""

import asyncio

import pytest

from parley.errors import OutcomeUnknown, StoreUnavailable
from parley.store.dynamodb.driver import is_valid_key, map_concurrently, retry_unknown
from parley.store.dynamodb.driver.client import UNKNOWN_ATTEMPTS_MAX
from parley.store.dynamodb.driver.items import KEY_BYTES_MAX


async def test_results_come_in_the_order_of_the_things() -> None:
    """Whoever is done first, the answers stand where their things stood."""

    async def slower_first(number: int) -> int:
        for _ in range(10 - number):
            await asyncio.sleep(0)
        return number * 2

    assert await map_concurrently(slower_first, range(10), 5) == [number * 2 for number in range(10)]


async def test_no_more_than_allowed_run_at_once() -> None:
    """The bound is reached and never passed."""
    running, most = 0, 0

    async def work(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await map_concurrently(work, range(20), 3)
    assert most == 3


async def test_the_first_failure_ends_the_others() -> None:
    """What fails is raised, and nothing goes on behind the caller's back."""
    ended: list[int] = []

    async def work(number: int) -> None:
        if number == 1:
            raise StoreUnavailable("no")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(StoreUnavailable):
        await map_concurrently(work, range(3), 3)
    assert ended == [0, 2]


class Writing:
    """A write that fails in a given way, then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.attempts = 0

    async def __call__(self) -> str:
        self.attempts += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


async def test_an_unknown_outcome_is_tried_again() -> None:
    """A write whose answer was lost is repeated."""
    write = Writing(OutcomeUnknown("lost"), OutcomeUnknown("lost"))
    assert (await retry_unknown(write), write.attempts) == ("done", UNKNOWN_ATTEMPTS_MAX)


async def test_what_stays_unknown_is_said_to_be_unknown() -> None:
    """After the last attempt nobody pretends to know."""
    with pytest.raises(OutcomeUnknown):
        await retry_unknown(Writing(*(OutcomeUnknown("lost") for _ in range(UNKNOWN_ATTEMPTS_MAX))))


async def test_a_store_that_goes_away_after_a_lost_answer_leaves_it_unknown() -> None:
    """The second attempt was not done, but the first one perhaps was."""
    with pytest.raises(OutcomeUnknown):
        await retry_unknown(Writing(OutcomeUnknown("lost"), StoreUnavailable("away")))


async def test_a_write_that_was_not_done_is_not_repeated() -> None:
    """A store that is away is told at once."""
    write = Writing(StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        await retry_unknown(write)
    assert write.attempts == 1


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("", False), ("a", True), ("\0", True), ("é" * (KEY_BYTES_MAX // 2), True), ("é" * 513, False)],
)
def test_keys_that_cannot_exist_are_known(text: str, is_one: bool) -> None:
    """Empty and overlong keys are never looked for."""
    assert is_valid_key(text) is is_one


def test_half_a_character_is_no_key() -> None:
    """A lone surrogate cannot be sent to anybody."""
    assert not is_valid_key("chat_\ud800")
