"""`parley recover`: the sources' counter recovery procedure, with their traps."""

import asyncio
from pathlib import Path

from aiohttp import ClientSession

from parley.checks.recovery import Recovery
from parley.checks.recovery import recover as recover_in
from parley.clock import from_iso
from tests.harness.clients import HttpClient, RawClient
from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley, succeed
from tests.integration.cli.stores import change, check_folder, one, open_store
from tests.integration.small_world import BEGINNING, GROUP_ENTRIES

GROUP = "WHERE chat_id = 'chat_group'"
COUNTER = f"SELECT sequence_counter FROM chat_counters {GROUP}"
LOSE_COUNTER = f"DELETE FROM chat_counters {GROUP}"


def recover(folder: Path, chat_id: str, *, apply: bool) -> Recovery:
    store = open_store(folder, lambda: from_iso(BEGINNING))
    return asyncio.run(recover_in(store, chat_id, apply=apply))


def test_a_dry_run_shows_and_changes_nothing(data: Path) -> None:
    """Without --apply the finding is told, with what would be written, and the counter stays away."""
    change(data, LOSE_COUNTER)
    run = parley("recover", "chat_group", data=data)
    assert run.status == 0
    assert f"would write: sequence_counter = {GROUP_ENTRIES}" in run.stdout
    assert "--apply" in run.stderr
    assert one(data, COUNTER) is None


def test_a_lost_counter_comes_back_with_its_audit_fields(data: Path) -> None:
    """--apply writes the highest number with recovered_at and recovered_from_sequence, and logs it."""
    change(data, LOSE_COUNTER)
    run = succeed("recover", "Tea", "--apply", data=data)
    assert "Counter recovered" in run.stderr
    assert one(data, COUNTER) == GROUP_ENTRIES
    assert one(data, f"SELECT recovered_from_sequence FROM chat_counters {GROUP}") == GROUP_ENTRIES
    recovered_at = one(data, f"SELECT recovered_at FROM chat_counters {GROUP}")
    assert isinstance(recovered_at, str)
    assert from_iso(recovered_at) > from_iso(BEGINNING)
    assert check_folder(data).is_clean


def test_a_counter_behind_its_log_needs_a_person(data: Path) -> None:
    """A counter that is there and too low is refused with the sources' own words and is not overwritten."""
    change(data, f"UPDATE chat_counters SET sequence_counter = 4 {GROUP}")
    run = parley("recover", "chat_group", "--apply", data=data)
    assert run.status == 1
    assert f"Counter exists with value 4 but max message sequence is {GROUP_ENTRIES}" in run.stderr
    assert "parley recover chat_group" in run.stderr
    assert one(data, COUNTER) == 4


def test_a_counter_that_is_fine_is_left_alone(data: Path) -> None:
    """Recovering a healthy chat says so, succeeds, and writes nothing."""
    before = one(data, "SELECT last FROM changes")
    outcome = succeed("recover", "chat_group", "--apply", "--json", data=data).json["chats"][0]
    assert (outcome["status"], outcome["sequence_counter"]) == ("fine", GROUP_ENTRIES)
    assert one(data, "SELECT last FROM changes") == before


def test_all_chats_without_a_counter_are_recovered_at_once(data: Path) -> None:
    """--all takes every chat that has no counter, and only those."""
    change(data, "DELETE FROM chat_counters")
    run = succeed("recover", "--all", "--apply", "--json", data=data)
    assert {chat["chat_id"] for chat in run.json["chats"]} == {"chat_group", "chat_direct"}
    assert check_folder(data).is_clean
    assert succeed("recover", "--all", data=data).stdout == "Every chat has its counter.\n"


def test_holes_are_given_up_only_when_asked(data: Path) -> None:
    """A lost entry stays a hole, which verification tells, until --seal-holes makes it a void."""
    change(data, "DELETE FROM messages WHERE chat_id = 'chat_group' AND sequence IN (2, 3)")
    run = parley("recover", "chat_group", "--apply", data=data)
    assert run.status == 1
    assert "--seal-holes" in run.stdout
    assert check_folder(data).counts["log_density"] == 1
    outcome = succeed("recover", "chat_group", "--seal-holes", "--apply", "--json", data=data).json["chats"][
        0
    ]
    assert outcome["voids"] == [[2, 3]]
    assert check_folder(data).is_clean


def test_asking_for_nothing_is_a_usage_error(data: Path) -> None:
    """Neither a chat nor --all is exit status 2."""
    assert parley("recover", data=data).status == 2
    assert parley("recover", "chat_nowhere", data=data).status == 1


async def test_a_running_server_goes_on_after_recovery(tmp_path: Path) -> None:
    """A counter lost under a running server stops that chat alone until recover, then it continues."""
    with ServerProcess(tmp_path / "data") as server:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            ann, ben = await http.newcomer("ann"), await http.newcomer("ben")
            lost = await http.of(ann).create_group(ben)
            other = await http.of(ann).create_group(ben)
            async with (
                RawClient(session, server.url, ann) as client,
                RawClient(session, server.url, ben) as reader,
            ):
                for number in range(3):
                    await client.send_message(lost, f"message {number}")
                await asyncio.to_thread(
                    change, server.data, f"DELETE FROM chat_counters WHERE chat_id = '{lost}'"
                )
                refusal = await client.send_message(lost, "while it is gone")
                assert refusal["code"] == "counter_missing"
                assert (await client.send_message(other, "meanwhile"))["sequence"] == 1
                assert one(server.data, f"SELECT count(*) FROM messages WHERE chat_id = '{lost}'") == 3
                await asyncio.to_thread(succeed, "recover", lost, "--apply", data=server.data)
                assert (await client.send_message(lost, "again"))["sequence"] == 4
                await reader.until(lambda r: len(r.live_entries(lost)) == 4)
            await asyncio.to_thread(succeed, "check", data=server.data)


async def test_voids_of_a_recovery_reach_live_readers(tmp_path: Path) -> None:
    """Numbers that recovery made void are told to whoever is connected, so that nobody waits for them."""
    with ServerProcess(tmp_path / "data") as server:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            ann = await http.newcomer("ann")
            chat_id = await http.of(ann).create_group()
            async with RawClient(session, server.url, ann) as client:
                await client.send_message(chat_id, "only one")
                await asyncio.to_thread(
                    change,
                    server.data,
                    f"DELETE FROM chat_counters WHERE chat_id = '{chat_id}'",
                    f"UPDATE delivery_state SET last_acked_sequence = 3 WHERE chat_id = '{chat_id}'",
                )
                await asyncio.to_thread(succeed, "recover", chat_id, "--apply", data=server.data)
                await client.until(
                    lambda c: any(
                        2 in frame.get("voids", []) for frame in c.unasked if frame["type"] == "messages"
                    )
                )
                assert (await client.send_message(chat_id, "next"))["sequence"] == 4
