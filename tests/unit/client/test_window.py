"""A window around a position of a chat: what a screen shows of a long log."""

from msgspec import structs

from parley.client import Client, LogWindow
from tests.model_server.server import make_entry
from tests.unit.client.fake_server import CHAT, FakeServer, fake_server
from tests.unit.client.test_sending_and_reading import fill, read, to


def sequences(window: LogWindow) -> list[int]:
    return [entry.sequence for entry in window.entries]


async def around(me: Client, position: int, size: int = 5) -> LogWindow:
    return await me.chat(CHAT).window(around=position, size=size)


async def test_a_window_has_both_sides_of_a_position() -> None:
    """As many positions before it as behind it, and no cursor moves."""
    async with fake_server() as server, to(server) as me:
        fill(server, 30)
        window = await around(me, 15)
        assert sequences(window) == [13, 14, 15, 16, 17]
        assert (window.first, window.last, window.head) == (13, 17, 30)
        assert await read(me, 1) == [1]


async def test_a_window_grows_at_both_ends_to_the_ends_of_the_log() -> None:
    """Each step joins what it has, until there is no more."""
    async with fake_server() as server, to(server) as me:
        fill(server, 20)
        window = await around(me, 10)
        while await window.older(4):
            pass
        while await window.newer(4):
            pass
        assert sequences(window) == list(range(1, 21))
        assert (window.is_at_start, window.is_at_end) == (True, True)


async def test_without_a_position_it_is_the_end_of_the_log() -> None:
    """What was sent since comes with the next step."""
    async with fake_server() as server, to(server) as me:
        fill(server, 12)
        window = await me.chat(CHAT).window(size=3)
        assert sequences(window) == [10, 11, 12]
        assert not await window.newer()
        fill(server, 1)
        assert await window.newer()
        assert sequences(window) == [10, 11, 12, 13]


async def test_a_window_has_its_position_however_short_pages_are() -> None:
    """A server may bring fewer entries than were asked for."""
    async with fake_server() as server, to(server) as me:
        server.model.page_entries_max = 2
        fill(server, 30)
        assert sequences(await around(me, 15, size=10)) == [10, 11, 12, 13, 14, 15]


async def test_the_first_and_the_last_position_are_windows_too() -> None:
    """Also one that is beyond the end."""
    async with fake_server() as server, to(server) as me:
        fill(server, 6)
        assert sequences(await around(me, 1)) == [1, 2, 3, 4, 5]
        assert sequences(await around(me, 6)) == [4, 5, 6]
        assert sequences(await around(me, 99)) == []
        assert (await around(me, 99)).is_at_end


async def test_voids_are_positions_without_an_entry() -> None:
    """They neither end a window nor part it."""
    async with fake_server() as server, to(server) as me:
        fill(server, 3)
        server.model.add(CHAT)
        fill(server, 3)
        window = await around(me, 4)
        assert sequences(window) == [2, 3, 5, 6]
        await window.older()
        assert (window.first, sequences(window)) == (1, [1, 2, 3, 5, 6])


async def test_messages_are_shown_as_they_are_now() -> None:
    """Edits, deletes and reactions inside the window are applied."""
    async with fake_server() as server, to(server) as me:
        fill(server, 2)
        amend(server, "edit", 1, content="better")
        amend(server, "reaction", 1, reaction="+1", on=True)
        amend(server, "delete", 2)
        first, second = (await me.chat(CHAT).window()).messages
        assert (first.entry.content, [one.reaction for one in first.reactions]) == ("better", ["+1"])
        assert second.entry.deleted is True


async def test_a_log_that_was_started_over_replaces_the_window() -> None:
    """Entries of two logs are never beside each other."""
    async with fake_server() as server, to(server) as me:
        fill(server, 10)
        window = await around(me, 9)
        server.model.start_over(CHAT)
        await window.older()
        assert {entry.epoch for entry in window.entries} == {2}


def amend(server: FakeServer, kind: str, target: int, **fields: object) -> None:
    entry = make_entry(CHAT, server.model.head(CHAT) + 1, kind=kind)
    about = {"target_id": make_entry(CHAT, target).message_id, **fields}
    server.model.add(CHAT, structs.replace(entry, **about))
