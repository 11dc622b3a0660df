"""What must always hold: whatever anybody asks for, or was told, is what follows from the events."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from tests.harness.clients import Answer, Frame, RawClient
from tests.integration.gateway.people_model.town import DEVICES, PEOPLE, Device, Listed, Town
from tests.integration.gateway.people_model.world import Chat

SAMPLED = 2
LISTS_KEPT_MAX = 15
NOBODY = "user_nobody"
HIDDEN = ("offline", "unavailable")
READABLE = ("type", "title", "peer", "last_entry", "unread_mentions")
"""What a brief chat list leaves out."""

T = TypeVar("T")


async def compare(town: Town, *, everything: bool = False) -> None:
    """What some ask for, or everybody, and what was told live."""

    def some(things: Sequence[T], count: int = SAMPLED) -> Sequence[T]:
        return things if everything else town.random.sample(things, min(count, len(things)))

    await town.settle()
    for device in some(DEVICES):
        await _compare_list(town, device)
        await _compare_devices(town, device)
    for device in some(DEVICES, 2 * SAMPLED):
        await _ask_what_changed(town, device)
    for username in some(PEOPLE, 1):
        await _compare_presences(town, username)
        await _compare_relations(town, username)
    for chat, username in itertools.product(some(town.chats), some(PEOPLE)):
        await _compare_chat(town, username, chat)
        places = [*(entry["sequence"] for entry in chat.log), *chat.voids, 0, chat.head + 1]
        for sequence in some(places):
            await _compare_receipts(town, username, chat, sequence)
    for client in town.clients.values():
        _check_told(town, client)


def _refused(answer: Answer, status: int, code: str) -> None:
    assert (answer.status, answer.body["code"]) == (status, code), answer


# The chat list


async def _compare_list(town: Town, device: Device) -> None:
    """The whole list, and who the others of direct chats are and whether they are there."""
    rows, limit = list[Frame](), 1 + town.random.randrange(100)
    page = await _page(town, device, "", limit, False)
    rows += page["chats"]
    while not page["complete"]:
        page = await _page(town, device, page["token"], limit, False)
        rows += page["chats"]
    for peer in [row["peer"] for row in rows if row["peer"] is not None]:
        username = next(name for name in PEOPLE if town.user_id(name) == peer["user_id"])
        assert (peer["username"], peer["display_name"]) == (username, username)
        _check_presence(town, town.user_id(device[0]), peer)
    assert {row["chat_id"]: _comparable(row, False) for row in rows} == _expected(town, device, False)
    for row in rows:
        assert max(row["last_acked_sequence"], row["read_up_to"]) <= row["head"]


async def _ask_what_changed(town: Town, device: Device) -> None:
    """What changed since any answer, put on top of what was known then, is the list once it is complete."""
    pick, to_the_end = town.random.choice, town.random.random() < 0.7
    limit, is_brief = town.random.randint(1, 4), pick((True, False))
    start = pick([town.lists[device][-1], pick(town.lists[device])])
    token, brief = start.token, start.brief or is_brief
    known = {chat_id: _comparable(row, brief) for chat_id, row in start.rows.items()}
    while True:
        page = await _page(town, device, token, limit, is_brief)
        for row in page["chats"]:
            _put(known, row, brief)
        token = page["token"]
        town.lists[device].append(Listed(token, dict(known), brief))
        if page["complete"]:
            expected = _expected(town, device, brief)
            assert _told(town, known) == _told(town, expected), (device, start)
            again = await _page(town, device, token, limit, is_brief)
            assert (again["chats"], again["complete"]) == ([], True)
            break
        if not to_the_end:
            break
    while len(town.lists[device]) > LISTS_KEPT_MAX:
        town.lists[device].pop(town.random.randrange(1, LISTS_KEPT_MAX))


@asynccontextmanager
async def reading_along(town: Town) -> AsyncIterator[None]:
    """Some go on with their lists while others act: what they know then, and the token, is for later."""
    is_over = asyncio.Event()
    devices = town.random.sample(town.here(), min(SAMPLED, len(town.here())))
    chances = [Random(town.random.random()) for _ in devices]
    reading = [_read_along(town, *one, is_over) for one in zip(devices, chances, strict=True)]
    readers = asyncio.gather(*reading)
    try:
        yield
    finally:
        is_over.set()
        await readers


async def _read_along(town: Town, device: Device, random: Random, is_over: asyncio.Event) -> None:
    token, rows, brief = town.lists[device][-1]
    is_brief = random.random() < 0.5
    brief = brief or is_brief
    known = {chat_id: _comparable(row, brief) for chat_id, row in rows.items()}
    while not is_over.is_set():
        page = await _page(town, device, token, random.randint(1, 4), is_brief, random)
        for row in page["chats"]:
            _put(known, row, brief)
        token = page["token"]
        town.lists[device].append(Listed(token, dict(known), brief))


def _put(known: dict[str, Frame], row: Frame, brief: bool) -> None:
    if row.get("left"):
        assert (row["unread"], row.get("title"), row.get("last_entry")) == (0, None, None)
        known.pop(row["chat_id"], None)
    else:
        known[row["chat_id"]] = _comparable(row, brief)


async def _page(
    town: Town, device: Device, token: str, limit: int, brief: bool, random: Random | None = None
) -> Frame:
    """Over its socket or by HTTP, which knows no brief ones."""
    since: dict[str, Any] = {"changed_since": token} if token else {}
    if device in town.clients and (brief or (random or town.random).random() < 0.5):
        asked = {**since, "limit": limit, "brief": brief}
        page = await town.clients[device].request("sync_overview", **asked)
        assert page["type"] == "overview", page
        assert not brief or not any(name in row for row in page["chats"] for name in READABLE)
    else:
        answer = await town.http(*device).get("/v1/chats", limit=limit, **since)
        assert answer.status == 200, answer
        page = answer.body
    assert 0 < len(page["chats"]) <= limit or page["complete"]
    return page


def _expected(town: Town, device: Device, brief: bool) -> dict[str, Frame]:
    rows = town.world.rows(town.user_id(device[0]), device[1], town.now())
    return {chat_id: _comparable(row, brief) for chat_id, row in rows.items()}


def _told(town: Town, rows: dict[str, Frame]) -> dict[str, Frame]:
    """What is told when it changes. On DynamoDB no device is told that it caught up with another one."""
    if not town.is_shared:
        return rows
    return {chat_id: {**row, "last_acked_sequence": None} for chat_id, row in rows.items()}


def _comparable(row: Frame, brief: bool) -> Frame:
    """Of the peer only who it is: whether they are there is told elsewhere."""
    if brief:
        return {name: value for name, value in row.items() if name not in READABLE}
    peer = row["peer"]
    return {**row, "peer": peer["user_id"] if isinstance(peer, dict) else peer}


# Devices and people


async def _compare_devices(town: Town, device: Device) -> None:
    answer = await town.http(*device).get("/v1/devices")
    found = {one["device_id"]: (one["sessions"], one["current"]) for one in answer.body["devices"]}
    sessions = town.world.devices(town.user_id(device[0]))
    assert found == {name: (count, name == device[1]) for name, count in sessions.items()}


async def _compare_presences(town: Town, username: str) -> None:
    asked = [*(town.user_id(name) for name in PEOPLE), NOBODY]
    sockets = [client for device, client in town.clients.items() if device[0] == username]
    if sockets:
        presences = (await sockets[0].request("presence_query", user_ids=asked))["presences"]
    else:
        presences = (await town.http(username).get("/v1/presence", user_ids=",".join(asked))).body[
            "presences"
        ]
    assert [told["user_id"] for told in presences] == asked
    for told in presences:
        _check_presence(town, town.user_id(username), told)


def _check_presence(town: Town, viewer: str, told: Frame) -> None:
    user, shown = told["user_id"], (told["status"], told["last_seen"])
    if user == NOBODY or not town.world.sees(viewer, user):
        assert shown == HIDDEN, (viewer, user)
        return
    is_online, at = town.world.presence(user)
    if town.is_shared:  # Redis has a clock of its own
        assert shown[0] == ("online" if is_online else "offline")
        assert shown[1] != "unavailable"
        return
    if is_online:
        assert shown[0] == "online"
        assert at is not None
        assert at <= shown[1] <= town.now()
    else:
        assert shown == ("offline", at)


async def _compare_relations(town: Town, username: str) -> None:
    user = town.user_id(username)
    for relation in ("blocks", "contacts"):
        answer = await town.http(username).get(f"/v1/{relation}")
        others = [town.user_id(name) for name in PEOPLE]
        held = sorted(other for other in others if town.world.holds(user, other, relation))
        assert [one["user_id"] for one in answer.body[relation]] == held


# A chat and its messages


async def _compare_chat(town: Town, username: str, chat: Chat) -> None:
    """How it is, every position of everybody, and who is there, as somebody sees it."""
    http, path, user = town.http(username), f"/v1/chats/{chat.chat_id}", town.user_id(username)
    view, marks, members = [await http.get(path + end) for end in ("", "/receipts", "/members")]
    if not town.is_member(username, chat):
        for answer in (view, marks, members):
            _refused(answer, 403, "not_a_member")
        return
    assert marks.body == town.world.marks(user, chat)
    joined = {member["user_id"]: member["joined_sequence"] for member in members.body["members"]}
    assert joined == chat.members()
    for member in members.body["members"]:
        _check_presence(town, user, member)
    row = town.world.row(user, "phone", chat, town.now())
    told = {**row, "read_receipts": chat.mode(), "member_count": len(joined)}
    assert view.body == view.body | {name: told[name] for name in told if name in view.body}


async def _compare_receipts(town: Town, username: str, chat: Chat, sequence: int) -> None:
    """Who has received and read what is somewhere, as somebody sees it."""
    path = f"/v1/chats/{chat.chat_id}/messages/{sequence}/receipts"
    answer, entry = await town.http(username).get(path), chat.at(sequence)
    if not town.is_member(username, chat):
        _refused(answer, 403, "not_a_member")
    elif sequence > chat.head:
        _refused(answer, 409, "ahead_of_log")
    elif entry is None:
        _refused(answer, 404, "not_found")
    else:
        assert answer.body == town.world.receipts(town.user_id(username), chat, entry), username


# What was told


def _check_told(town: Town, client: RawClient) -> None:
    """What a socket is told of somebody only rises, is no further than they are, and not hidden from it."""
    world, viewer = town.world, client.person.user_id
    told: dict[tuple[str, str | None, str], int] = {}
    for frame in client.heard("receipt"):
        chat, user, kind = world.chats[frame["chat_id"]], frame["user_id"], frame["kind"]
        up_to, place = frame["up_to_sequence"], (chat.chat_id, user, kind)
        assert viewer in chat.members()
        others = [user] if user is not None else [other for other in chat.members() if other != viewer]
        shown = [other for other in others if _is_shown(town, viewer, other, chat, kind, user is not None)]
        position = world.read if kind == "read" else world.delivered
        assert up_to <= max([position(other, chat.chat_id)[0] for other in shown], default=0), frame
        if user is not None:
            assert told.get(place, 0) < up_to, frame
            told[place] = up_to
    client.unasked.clear()


def _is_shown(town: Town, viewer: str, user: str, chat: Chat, kind: str, is_named: bool) -> bool:
    """Whether somebody may be told that a position of another one rose, by name or without."""
    if viewer == user:
        return kind == "read"
    if town.world.blocks(user, viewer):
        return False
    mode = "full" if is_named else "simple"
    return kind == "delivered" or (chat.mode() == mode and town.world.shown_reads(viewer, user))
