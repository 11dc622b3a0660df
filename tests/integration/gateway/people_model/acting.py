"""What people do: each step is one thing that somebody, or several at once, may do next."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from parley.store.sqlite.log import SEAL_AFTER_MS
from tests.harness.clients import Answer, Frame
from tests.integration.gateway.people_model.events import Acked, Holds, Muted, Read, SendsReads, ShowsTo
from tests.integration.gateway.people_model.town import PEOPLE, Device, Entries, Town
from tests.integration.gateway.people_model.world import Chat

Step = Callable[[Town], Coroutine[Any, Any, None]]
CHATS_MAX = 7
RACING = 4
KINDS = ("ack", "ack", "delivery_receipt", "delivery_receipt", "read_receipt", "read_receipt")
SHARES = (0, 0.2, 0.4, 0.5, 0.7, 0.9, 1, 1, 1, 1.1)
MODES = ("full", "full", "simple", "none")
TIMES = (None, "2999-01-01T00:00:00.000Z", "2020-01-01T00:00:00.000Z")
PRIVACIES = ("everyone", "everyone", "contacts", "nobody")


# Messages


async def send(town: Town) -> None:
    """Messages, all at once, from several devices into several chats."""
    town.pass_time()
    sent: list[tuple[Device, Chat, str, asyncio.Future[Frame]]] = []
    for _ in range(town.random.randint(1, 8)):
        device, chat = town.random.choice(town.here()), town.random.choice(town.chats)
        content = f"message {next(town.numbers)}"
        sent.append((device, chat, content, await town.clients[device].post_message(chat.chat_id, content)))
    expected: dict[str, Entries] = {}
    for device, chat, content, posted in sent:
        answer = await town.clients[device].answered(posted)
        code = town.why_refused(device[0], chat)
        assert answer.get("code") == code, answer
        if code is None:
            said = town.user_id(device[0]), content
            expected.setdefault(chat.chat_id, {})[answer["sequence"]] = said
    for chat in town.chats:
        await town.grow(chat, expected.get(chat.chat_id, {}))


async def race(town: Town) -> None:
    """Somebody writes while they are removed, or blocked: before it all is stored, and nothing after."""
    town.pass_time()
    device = town.random.choice(town.here())
    user, client = town.user_id(device[0]), town.clients[device]
    mine = [chat for chat in town.chats if town.why_refused(device[0], chat) is None and chat.owner != user]
    if not mine:
        return
    chat = town.random.choice(mine)
    is_group, owner = chat.type == "group", town.owner(chat)
    http, members = town.http(owner), f"/v1/chats/{chat.chat_id}/members"
    ending = asyncio.create_task(
        http.delete(f"{members}/{user}") if is_group else http.put(f"/v1/blocks/{user}")
    )
    posted: dict[str, asyncio.Future[Frame]] = {}
    for _ in range(RACING):
        content = f"message {next(town.numbers)}"
        posted[content] = await client.post_message(chat.chat_id, content)
    ended, expected = await ending, Entries()
    assert ended.status == 200, ended
    last = ended.body["sequence"] if is_group else None
    for content, answer in posted.items():
        told = await client.answered(answer)
        if told["type"] == "ack":
            assert last is None or told["sequence"] < last
            expected[told["sequence"]] = user, content
        else:
            assert told["code"] == ("not_a_member" if is_group else "blocked"), told
    said = [content for _, content in expected.values()]
    assert said == list(posted)[: len(said)], "the first ones, in their order"
    assert list(expected) == sorted(expected)
    if last is not None:
        body = {"action": "removed", "user_id": user, "role": "member"}
        expected[last] = chat.owner, body
    else:
        town.world.events.append(Holds(chat.owner, user, "blocks", True))
    await town.grow(chat, expected, raced=True)
    if is_group:
        await _hear_change(town, device[0], chat, "left")
    await town.drain()


async def abandon(town: Town) -> None:
    """Numbers are taken that nobody will write."""
    chat = town.random.choice(town.chats)
    for _ in range(town.random.randint(1, 3)):
        town.abandon(chat)


async def seal(town: Town) -> None:
    """What was abandoned is declared void in time, if nobody writes behind it before."""
    town.clock.advance(SEAL_AFTER_MS)
    app = town.served.app
    app.bus.publish(await app.store.log.seal())
    for chat in town.chats:
        await town.grow(chat, {}, sealed=True)


# Positions


class Wish(NamedTuple):
    """What a device wants to say of how far it, or its person, is.

    `share` of the log, beyond its end above 1; `by_id`: by the id of what is there.
    """

    kind: str
    device: Device
    chat: Chat
    share: float
    by_id: bool


def _wish(town: Town, device: Device) -> Wish:
    pick = town.random.choice
    return Wish(pick(KINDS), device, pick(town.chats), pick(SHARES), pick((True, False)))


def _wishes(town: Town, count: int) -> list[Wish]:
    return [_wish(town, town.random.choice(town.here())) for _ in range(count)]


async def report(town: Town) -> None:
    """Acks and receipts of many devices at once: forwards, backwards and too far."""
    await _report(town, _wishes(town, town.random.randint(1, 12)))


async def follow(town: Town) -> None:
    """One device takes note of everything there is, step by step."""
    wish = _wishes(town, 1)[0]
    await _report(town, [wish._replace(share=share) for share in (0.25, 0.5, 0.75, 1)])


async def restart(town: Town) -> None:
    """Stop and start; what was said right before the end counts like everything else."""
    await _say(town, _wishes(town, town.random.randint(0, 6)))
    await town.restart()
    for chat in town.chats:
        await town.grow(chat, {}, sealed=True)


async def _report(town: Town, wishes: list[Wish]) -> None:
    said = await _say(town, wishes)
    for device in {wish.device: None for wish in wishes}:
        assert (await town.clients[device].heartbeat())["type"] == "heartbeat_ack"
    for wish, code, answer in said:
        assert (answer.result()["code"] if answer.done() else None) == code, wish


async def _say(town: Town, wishes: list[Wish]) -> list[tuple[Wish, str | None, asyncio.Future[Frame]]]:
    """Say it without waiting, and note what must come of it: a refusal, or an event."""
    now, said = town.pass_time(), []
    for wish in wishes:
        chat = wish.chat
        sequence = int(chat.head * wish.share) + (wish.share > 1)
        fields, code = _frame(wish, sequence)
        if not town.is_member(wish.device[0], chat):
            code = "not_a_member"
        posted = await town.clients[wish.device].post(wish.kind, chat_id=chat.chat_id, **fields)
        said.append((wish, code, posted))
        if code is None:
            _note(town, wish, sequence, now)
    return said


def _frame(wish: Wish, sequence: int) -> tuple[dict[str, object], str | None]:
    """The frame's own fields, and why a member would be refused."""
    entry = wish.chat.at(sequence)
    message_id = entry["message_id"] if entry is not None else "msg_nothing"
    if wish.kind == "delivery_receipt":
        return {"message_id": message_id}, "not_found" if entry is None else None
    if wish.kind == "read_receipt" and wish.by_id:
        return {"read_up_to": message_id}, "not_found" if entry is None else None
    code = "ahead_of_log" if sequence > wish.chat.head else None
    name = "read_up_to" if wish.kind == "read_receipt" else "last_acked_sequence"
    return {name: sequence}, code


def _note(town: Town, wish: Wish, sequence: int, now: str) -> None:
    world, chat, user, device = town.world, wish.chat, town.user_id(wish.device[0]), wish.device[1]
    if wish.kind == "read_receipt":
        world.events.append(Read(user, chat.chat_id, sequence, now))
        return
    if wish.kind == "delivery_receipt":
        sequence = world.moves_cursor(user, device, chat, sequence)
    world.events.append(Acked(user, device, chat.chat_id, sequence, now))


# Chats and their members


async def open_chat(town: Town) -> None:
    """A new group, or the direct chat of two people, of which there is one; not with who blocks one."""
    one, other, third = town.random.sample(PEOPLE, 3)
    if town.random.random() < 0.5 and len(town.chats) < CHATS_MAX:
        await _open_group(town, one, other, third)
        return
    pair = {town.user_id(one), town.user_id(other)}
    known = [chat for chat in town.chats if chat.type == "direct" and set(chat.members()) == pair]
    if not (known or town.world.blocks(town.user_id(other), town.user_id(one))):
        await town.create("direct", one, other)
        return
    wanted = {"type": "direct", "member_ids": [town.user_id(other)]}
    answer = await town.http(one).post("/v1/chats", wanted)
    if town.world.blocks(town.user_id(other), town.user_id(one)):
        _check_refused(answer, "blocked")
    else:
        assert (answer.status, answer.body["chat_id"]) == (200, known[0].chat_id), answer


async def _open_group(town: Town, owner: str, *others: str) -> None:
    """Not with whoever blocks the one who opens it."""
    ids = [town.user_id(name) for name in others]
    if not any(town.world.blocks(user, town.user_id(owner)) for user in ids):
        await town.create("group", owner, *others)
        return
    answer = await town.http(owner).post("/v1/chats", {"type": "group", "member_ids": ids})
    _check_refused(answer, "blocked")


async def come_or_go(town: Town) -> None:
    """Who is in a group leaves it or is removed; who is not joins or is added. Others go on talking."""
    chat = town.random.choice(town.groups())
    username = town.random.choice([name for name in PEOPLE if name != town.owner(chat)])
    by_owner, user = town.random.random() < 0.5, town.user_id(username)
    actor, comes = town.owner(chat) if by_owner else username, not town.is_member(username, chat)
    path, http = f"/v1/chats/{chat.chat_id}/members", town.http(actor)
    town.pass_time()
    answer = await (http.post(path, {"user_id": user}) if comes else http.delete(f"{path}/{user}"))
    if comes and by_owner and town.world.blocks(user, town.user_id(actor)):
        _check_refused(answer, "blocked")
        return
    assert answer.status in (200, 201), answer
    action = "joined" if comes else "removed" if by_owner else "left"
    body = {"action": action, "user_id": user, "role": "member"}
    await town.grow(chat, {answer.body["sequence"]: (town.user_id(actor), body)})
    await _hear_change(town, username, chat, "joined" if comes else "left")
    await town.drain()
    await _report(town, [wish._replace(chat=chat) for wish in _wishes(town, 3)])


async def _hear_change(town: Town, username: str, chat: Chat, change: str) -> None:
    """Their sockets learn of it live."""
    for device in [device for device in town.here() if device[0] == username]:
        await town.clients[device].hear("chat_changed", chat_id=chat.chat_id, change=change)


async def change_chat(town: Town) -> None:
    """What a chat tells of readers is chosen by its owner, in a direct chat by both; a title by the owner."""
    chat, title = town.random.choice(town.chats), f"title {next(town.numbers)}"
    username = town.random.choice([town.owner(chat), *PEOPLE])
    is_renamed = chat.type == "group" and town.random.random() < 0.3
    change = {"title": title} if is_renamed else {"read_receipts": town.random.choice(MODES)}
    town.pass_time()
    answer = await town.http(username).patch(f"/v1/chats/{chat.chat_id}", change)
    user, code = town.user_id(username), town.why_refused(username, chat)
    if code is None and chat.type == "group" and user != chat.owner:
        code = "forbidden"
    if code is None:
        assert (answer.status, answer.body | change) == (200, answer.body), answer
        sequence = chat.head + len(chat.taken) + 1
        body = {"action": "renamed" if is_renamed else "read_receipts", **change}
        await town.grow(chat, {sequence: (user, body)})
        await town.drain()
    else:
        _check_refused(answer, code)


async def mute(town: Town) -> None:
    """Somebody mutes a chat for themself, if it is theirs."""
    chat, username = town.random.choice(town.chats), town.random.choice(PEOPLE)
    until = town.random.choice(TIMES)
    answer = await town.http(username).patch(f"/v1/chats/{chat.chat_id}", {"muted_until": until})
    if town.is_member(username, chat):
        assert (answer.status, answer.body["muted_until"]) == (200, until), answer
        town.world.events.append(Muted(town.user_id(username), chat.chat_id, until))
    else:
        _check_refused(answer, "not_a_member")


def _check_refused(answer: Answer, code: str) -> None:
    assert (answer.status, answer.body["code"]) == (403, code), answer


# What people choose


async def choose_to_send_reads(town: Town) -> None:
    """Somebody lets others know what they read, or no longer."""
    username, sends = town.random.choice(PEOPLE), town.random.random() < 0.7
    answer = await town.http(username).patch("/v1/me", {"send_read_receipts": sends})
    assert answer.status == 200, answer
    town.world.events.append(SendsReads(town.user_id(username), sends))
    await town.drain()


async def choose_to_be_seen(town: Town) -> None:
    """Somebody shows when they are there to everyone, to contacts, to nobody."""
    username, privacy = town.random.choice(PEOPLE), town.random.choice(PRIVACIES)
    answer = await town.http(username).patch("/v1/me", {"last_seen_privacy": privacy})
    assert answer.status == 200, answer
    town.world.events.append(ShowsTo(town.user_id(username), privacy))


async def block(town: Town) -> None:
    """Somebody blocks another one, or takes it back."""
    await _hold(town, "blocks", 0.5)
    await town.drain()


async def befriend(town: Town) -> None:
    """Somebody takes another one for a contact, or no longer."""
    await _hold(town, "contacts", 0.7)


async def _hold(town: Town, relation: str, share: float) -> None:
    user, other = [town.user_id(name) for name in town.random.sample(PEOPLE, 2)]
    username = next(name for name in PEOPLE if town.user_id(name) == user)
    holds, path = town.random.random() < share, f"/v1/{relation}/{other}"
    http = town.http(username)
    answer = await (http.put(path) if holds else http.delete(path))
    assert answer.status == (200 if holds else 204), answer
    town.world.events.append(Holds(user, other, relation, holds))


# Devices


async def go_or_return(town: Town) -> None:
    """A device closes its socket or opens one again; ann's phone is always there."""
    town.pass_time()
    device = town.random.choice([device for device in town.logins if device != ("ann", "phone")])
    await (town.disconnect(device) if device in town.clients else town.connect(device))


async def log_in_again(town: Town) -> None:
    """One more session of a device; then perhaps one of them is revoked, and the device stays what it is."""
    device = town.random.choice(list(town.logins))
    await town.log_in(device)
    town.pass_time()
    if town.random.random() < 0.7:
        ended = town.random.choice(town.logins[device])
        answer = await town.http(device[0]).delete(f"/v1/sessions/{ended.session_id}")
        assert answer.status == 204, answer
        await town.logged_out(device, [ended])


async def replace_device(town: Town) -> None:
    """A device is removed, whatever it just said, and one of the same name starts from nothing."""
    device = town.random.choice(town.here())
    await _report(town, [_wish(town, device) for _ in range(3)])
    sessions, http = list(town.logins[device]), town.http(*device)
    town.pass_time()
    if len(sessions) == 1 and town.random.random() < 0.5:
        removed = await http.delete(f"/v1/sessions/{sessions[0].session_id}")
    else:
        removed = await http.delete(f"/v1/devices/{device[1]}")
    assert removed.status == 204, removed
    await town.logged_out(device, sessions)


STEPS_BY_WEIGHT: dict[Step, int] = {
    send: 6,
    report: 6,
    follow: 3,
    race: 3,
    abandon: 2,
    seal: 1,
    restart: 2,
    open_chat: 2,
    come_or_go: 4,
    change_chat: 3,
    mute: 2,
    choose_to_send_reads: 2,
    choose_to_be_seen: 1,
    block: 3,
    befriend: 1,
    go_or_return: 3,
    log_in_again: 2,
    replace_device: 2,
}

OF_ONE_PROCESS: set[Step] = {abandon, seal}
"""Steps that reach into the file of the store."""

ON_THE_SAME_SOCKETS: set[Step] = {
    send,
    report,
    follow,
    race,
    seal,
    open_chat,
    come_or_go,
    change_chat,
    mute,
    block,
}
"""Steps beside which others may go on with what they do."""
