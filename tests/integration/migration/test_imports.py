"""Imports of Slack and Mattermost: authors, times, order and threads are kept, and nothing comes twice."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec
import pytest

from parley.clock import wall_clock
from parley.core.shown_text import shown_text
from parley.errors import ConfigError
from parley.ids import Ids
from parley.migration.imports import ImportReport
from parley.migration.mattermost import MattermostExport
from parley.migration.slack import SlackExport
from parley.migration.stores import GROUPS, import_workspace
from parley.migration.workspaces import ImportFailed, Workspace, kind_of
from parley.model import AccountState, StoredEntry
from parley.records.kinds import Kinds
from parley.records.listing import Listing
from parley.store.ports import Engine
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics
from parley.wire.frames import Entry
from tests.contracts.life_world import make_life
from tests.harness.clock import VirtualClock
from tests.integration.migration.exported import mattermost_jsonl, slack_zip

decode_entry = msgspec.json.Decoder(Entry).decode
CLOCK = VirtualClock()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Engine]:
    store = SqliteStore(
        folder,
        clock=CLOCK,
        ids=Ids(random.SystemRandom().getrandbits),
        metrics=Metrics(CLOCK),
        sequencing="atomic",
    )
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def bring(engine: Engine, workspace: Workspace, *, matches_names: bool = False) -> ImportReport:
    return await import_workspace(
        workspace, engine, CLOCK, "cli:test", matches_names=matches_names, on_progress=lambda _: None
    )


async def chats(engine: Engine) -> dict[str, list[Entry]]:
    """The entries of each chat, by its title or the names of its two people."""
    return {
        str(chat.title): [decode_entry(e) for e in (await engine.log.read(chat.chat_id, 0, 100)).entries]
        for chat in await Listing(engine, wall_clock).chats()
    }


async def named(engine: Engine) -> dict[str, str]:
    return {user.user_id: user.username for user in await Listing(engine, wall_clock).users()}


async def told(engine: Engine, title: str) -> list[tuple[str, str, str | None]]:
    """Who said what when, by names."""
    names = await named(engine)
    return [
        (names[entry.sender_id], entry.content, entry.display_time)
        for entry in (await chats(engine))[title]
        if entry.kind == "message"
    ]


async def test_slack_is_kept_as_it_was(tmp_path: Path) -> None:
    """Authors, order, times, mentions and links of a channel; what is no message is left out and counted."""
    export = SlackExport(slack_zip(tmp_path / "slack.zip"), "slack")
    async with opened(tmp_path / "data") as engine:
        report = await bring(engine, export)
        assert await told(engine, "general") == [
            (
                "ada.l",
                "hello @bob & a link (https://x.org/?a=1&b=2) in #general @here",
                "2017-07-14T02:40:01.000Z",
            ),
            ("bob", "second", "2017-07-14T02:40:02.000Z"),
            ("gone", "a reply", "2017-07-14T02:40:03.000Z"),
            ("ada.l", "a late reply\n[file: plan.pdf]", "2017-07-15T06:26:40.000Z"),
            ("bot-build-bot", "build <b>done</b>", "2017-07-15T06:26:40.000Z"),
        ]
        assert await told(engine, "ada.l, bob") == [("bob", "psst", "2017-07-14T02:40:09.000Z")]
        names = {name: user_id for user_id, name in (await named(engine)).items()}
        first = (await chats(engine))["general"][0]
        assert first.mentions == [names["bob"]]
        assert (report.people_made, report.chats_made, report.messages_stored) == (4, 2, 6)
        assert report.left_out == {"channel_join": 1, "files": 1}
        assert not report.problems


async def test_threads_are_kept(tmp_path: Path) -> None:
    """A reply names the message that its thread begins with, however far apart they are."""
    for name, export in (
        ("slack", SlackExport(slack_zip(tmp_path / "s.zip"), "slack")),
        ("mattermost", MattermostExport(mattermost_jsonl(tmp_path / "m.jsonl"), "mattermost")),
    ):
        async with opened(tmp_path / name) as engine:
            await bring(engine, export)
            entries = (await chats(engine))["general" if name == "slack" else "Town Square"]
            threads = {entry.content.partition("\n")[0]: entry.reply_to for entry in entries}
            root = entries[0].message_id
            replies = {text for text, about in threads.items() if about == root}
            expected = {"slack": {"a reply", "a late reply"}, "mattermost": {"reply", "late reply"}}
            assert replies == expected[name]


async def test_reactions_and_replies_are_counted(tmp_path: Path) -> None:
    """Each reaction is an entry behind the messages, by whom it was; a second import adds none."""
    for name, source in (("slack", "general"), ("mattermost", "Town Square")):
        async with opened(tmp_path / name) as engine:
            for at in range(2):
                export: Workspace = (
                    SlackExport(slack_zip(tmp_path / f"{at}.zip"), "slack")
                    if name == "slack"
                    else MattermostExport(mattermost_jsonl(tmp_path / f"{at}.jsonl"), "mattermost")
                )
                report = await bring(engine, export)
                assert report.reactions_stored == 1 - at
                entries = (await chats(engine))[source]
                names = await named(engine)
                (reaction,) = [entry for entry in entries if entry.kind == "reaction"]
                assert (names[reaction.sender_id], reaction.reaction) == ("bob", ":tada:")
                life = make_life(engine, lambda: 0)
                root = next(entry for entry in entries if entry.message_id == reaction.target_id)
                now = await life.message(root.sender_id, root.chat_id, root.message_id)
                assert [(one.reaction, one.count) for one in now.reactions] == [(":tada:", 1)]
                assert now.reply_count == 2


async def test_mattermost_is_kept_in_the_order_of_time(tmp_path: Path) -> None:
    """Replies stand with their root in the file, and among the others in the log."""
    export = MattermostExport(mattermost_jsonl(tmp_path / "m.jsonl"), "mattermost")
    async with opened(tmp_path / "data") as engine:
        report = await bring(engine, export)
        assert await told(engine, "Town Square") == [
            ("ada", "root", "2017-07-14T02:40:01.000Z"),
            ("gone", "reply", "2017-07-14T02:40:03.000Z"),
            ("bob", "between\n[file: plan.pdf]", "2017-07-14T02:40:05.000Z"),
            ("bob", "late reply", "2017-07-14T02:40:09.000Z"),
        ]
        assert report.left_out == {"files": 1, "system_join_channel": 1, "emoji": 1}
        assert (report.people_made, report.chats_made, report.messages_stored) == (3, 2, 5)


async def test_who_has_left_is_no_member(tmp_path: Path) -> None:
    """Their messages stay; they are in the chat no more, and their account is disabled."""
    async with opened(tmp_path / "data") as engine:
        await bring(engine, SlackExport(slack_zip(tmp_path / "slack.zip"), "slack"))
        (chat,) = await Listing(engine, wall_clock).find_chats("general")
        members = {
            member.username: member.role for member in await Listing(engine, wall_clock).members(chat.chat_id)
        }
        assert members == {"ada.l": "owner", "bob": "member"}
        found = await Kinds(engine, wall_clock).accounts.user_by_name("gone")
        assert found is not None
        assert found[0].state is AccountState.DISABLED


async def test_an_import_may_be_repeated(tmp_path: Path) -> None:
    """Nothing comes twice; a newer export adds what is new, also by people who have left."""
    async with opened(tmp_path / "data") as engine:
        await bring(engine, SlackExport(slack_zip(tmp_path / "one.zip"), "slack"))
        before = await chats(engine)
        again = await bring(engine, SlackExport(slack_zip(tmp_path / "two.zip"), "slack"))
        assert await chats(engine) == before
        assert (again.messages_stored, again.messages_there, again.people_made, again.chats_made) == (
            0,
            6,
            0,
            0,
        )
        more = {"type": "message", "user": "U3", "text": "still here", "ts": "1500200000.000000"}
        newer = await bring(engine, SlackExport(slack_zip(tmp_path / "three.zip", more), "slack"))
        assert newer.messages_stored == 1
        assert (await told(engine, "general"))[-1] == ("gone", "still here", "2017-07-16T10:13:20.000Z")
        (chat,) = await Listing(engine, wall_clock).find_chats("general")
        assert {one.username for one in await Listing(engine, wall_clock).members(chat.chat_id)} == {
            "ada.l",
            "bob",
        }


class Interrupted(Exception):
    pass


async def test_an_import_that_died_is_continued(tmp_path: Path) -> None:
    """Wherever it dies, the next one ends with the same logs."""
    async with opened(tmp_path / "whole") as engine:
        await bring(engine, SlackExport(slack_zip(tmp_path / "slack.zip"), "slack"))
        whole = {title: await told(engine, title) for title in ("general", "ada.l, bob")}
    for at in range(1, 12):
        async with opened(tmp_path / f"data{at}") as engine:
            left, append = at, engine.log.append

            async def dying(drafts: Any, append: Any = append) -> Any:
                nonlocal left
                left -= 1
                result = await append(drafts)
                if not left:
                    raise Interrupted
                return result

            engine.log.append = dying  # type: ignore[method-assign]
            try:
                await bring(engine, SlackExport(tmp_path / "slack.zip", "slack"))
            except Interrupted:
                await bring(engine, SlackExport(tmp_path / "slack.zip", "slack"))
            assert {title: await told(engine, title) for title in whole} == whole


async def test_names_that_are_taken_are_not_taken_over(tmp_path: Path) -> None:
    """Whoever has the name already stays themselves, unless the operator says that they are the same."""
    async with opened(tmp_path / "data") as engine:
        await bring(engine, MattermostExport(mattermost_jsonl(tmp_path / "m.jsonl"), "first"))
        await bring(engine, MattermostExport(tmp_path / "m.jsonl", "second"))
        assert sorted((await named(engine)).values()) == ["ada", "ada-2", "bob", "bob-2", "gone", "gone-2"]
    async with opened(tmp_path / "other") as engine:
        await bring(engine, MattermostExport(tmp_path / "m.jsonl", "first"))
        matched = await bring(engine, SlackExport(slack_zip(tmp_path / "s.zip"), "slack"), matches_names=True)
        assert (matched.people_there, matched.people_made) == (2, 2)


async def test_names_hide_nothing(tmp_path: Path) -> None:
    """Also where an archive has no name that shows, and another one stands in for it."""
    path = tmp_path / "slack.zip"
    hidden, overridden = "\u200b", "eve\u202e\x1b"
    with ZipFile(path, "w") as archive:
        person = {"id": "U1", "name": overridden, "profile": {"real_name": hidden}}
        channel = {"id": f"C1{overridden}", "name": hidden, "members": ["U1"]}
        archive.writestr("users.json", msgspec.json.encode([person]))
        archive.writestr("channels.json", msgspec.json.encode([channel]))
    async with opened(tmp_path / "data") as engine:
        await bring(engine, SlackExport(path, "slack"))
        (user,) = [one for one in await Listing(engine, wall_clock).users() if one.display_name]
        (chat,) = await Listing(engine, wall_clock).chats()
        names = (user.username, user.display_name, str(chat.title))
        assert all(name and name == shown_text(name) for name in names), names


async def test_nobody_can_log_in_as_them_yet(tmp_path: Path) -> None:
    """No password fits an imported account until an operator sets one."""
    async with opened(tmp_path / "data") as engine:
        await bring(engine, SlackExport(slack_zip(tmp_path / "slack.zip"), "slack"))
        found = await Kinds(engine, wall_clock).accounts.user_by_name("bob")
        assert found is not None
        assert found[1] == "!"


async def test_old_messages_are_no_news(tmp_path: Path) -> None:
    """Workers that ring and call webhooks begin after what was imported; unfinished work is not skipped."""
    async with opened(tmp_path / "data") as engine:
        await bring(engine, SlackExport(slack_zip(tmp_path / "slack.zip"), "slack"))
        assert engine.feed is not None
        assert await engine.feed.lags() == dict.fromkeys(GROUPS, 0)
        (chat,) = await Listing(engine, wall_clock).find_chats("general")
        await engine.transfer.put_positions(chat.chat_id, [StoredEntry(99, None)])
        with pytest.raises(ConfigError, match="deliveries are under way"):
            await bring(engine, SlackExport(tmp_path / "slack.zip", "slack"))


async def test_long_messages_are_cut_and_say_so(tmp_path: Path) -> None:
    """Slack allows longer ones than Parley."""
    more = {"type": "message", "user": "U1", "text": "ü" * 40_000, "ts": "1500200000.000000"}
    async with opened(tmp_path / "data") as engine:
        report = await bring(engine, SlackExport(slack_zip(tmp_path / "slack.zip", more), "slack"))
        assert not report.problems
        assert (await told(engine, "general"))[-1][1].endswith("ü… [cut]")


def test_other_files_are_refused(tmp_path: Path) -> None:
    """In a sentence that names the file."""
    (tmp_path / "x.zip").write_bytes(b"no zip")
    with ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(ImportFailed, match=r"x\.zip"):
        SlackExport(tmp_path / "x.zip", "slack")
    with pytest.raises(ImportFailed, match=r"users\.json"):
        SlackExport(tmp_path / "other.zip", "slack")
    with pytest.raises(ImportFailed, match="line 1"):
        MattermostExport(tmp_path / "x.zip", "mattermost")
    (tmp_path / "m.jsonl").write_text('{"type": "post"}\n')
    with pytest.raises(ImportFailed, match="version"):
        MattermostExport(tmp_path / "m.jsonl", "mattermost")
    assert kind_of(slack_zip(tmp_path / "s.zip")) == "slack"
    assert kind_of(tmp_path / "m.jsonl") == "mattermost"
