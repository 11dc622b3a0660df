"""The rules of the WebSocket contract over real sockets: order, refusals, hostile frames, closing."""

import asyncio
import uuid
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest
from aiohttp import WSServerHandshakeError

from parley.wire import codes, limits
from tests.acceptance.world import World, mode_environment, world_on
from tests.harness.clients import Disconnected, Frame, Unexpected
from tests.harness.proxy import Chaos, ChaosProxy
from tests.harness.server import ServerProcess
from tests.unit.wire.hostile import NONSENSE_BYTES, NONSENSE_TEXTS


@pytest.fixture(params=[False, True], ids=["json", "msgpack"])
def msgpack(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def mode() -> str:
    """These rules are the gateway's: one mode is enough."""
    return "atomic"


async def test_both_codecs_say_the_same(server: ServerProcess) -> None:
    """An entry and a page are the same values in JSON and in MessagePack."""
    async with world_on(server) as world:
        async with (
            world.client(world.ann) as json_reader,
            world.client(world.ben, msgpack=True) as packed_reader,
        ):
            await json_reader.send_message(
                world.chat_id, 'awkward " \x00 👋🏽', display_time="2026-01-30T14:30:00Z"
            )
            live = [await each.live_entry(world.chat_id, 1) for each in (json_reader, packed_reader)]
            pages = [await each.sync(world.chat_id) for each in (json_reader, packed_reader)]
        assert live[0] == live[1] == pages[0]["entries"][0]
        assert {**pages[0], "re": 0} == {**pages[1], "re": 0}
        assert live[0]["content"] == 'awkward " \x00 👋🏽'


async def test_welcome_says_what_a_client_needs(server: ServerProcess, msgpack: bool) -> None:
    """The answer to hello names the session, the heartbeat and the limits."""
    async with world_on(server) as world, world.client(world.ann, msgpack=msgpack) as ann:
        welcome = ann.welcome
        assert (welcome["user_id"], welcome["device_id"]) == (world.ann.user_id, "phone")
        assert (welcome["session_id"], welcome["heartbeat_seconds"]) == (world.ann.session_id, 30)
        assert welcome["limits"] == limits.WELCOME_LIMITS


async def test_a_sender_hears_its_ack_before_its_own_entry(server: ServerProcess) -> None:
    """On the sending socket the ack of a message always comes before the entry."""
    async with world_on(server) as world:
        heard: list[tuple[str, int]] = []
        async with world.unrecorded(world.ann, observer=Order(heard)) as ann:
            answers = [await ann.post_message(world.chat_id, f"message {n}") for n in range(100)]
            for answer in answers:
                await ann.answered(answer)
            await ann.live_entry(world.chat_id, 100)
        for sequence in range(1, 101):
            assert heard.index(("ack", sequence)) < heard.index(("entry", sequence))


class Order:
    """Notes in which order acks and entries come."""

    def __init__(self, heard: list[tuple[str, int]]) -> None:
        self._heard = heard

    def sent(self, frame: Frame) -> None:
        """Only what is heard matters."""

    def received(self, frame: Frame) -> None:
        if frame["type"] == "ack":
            self._heard.append(("ack", frame["sequence"]))
        elif frame["type"] == "messages":
            self._heard += [("entry", entry["sequence"]) for entry in frame["entries"]]


async def test_an_answer_means_that_all_before_it_is_visible(server: ServerProcess) -> None:
    """When a heartbeat is answered, everything sent before it is stored and every reader sees it."""
    async with world_on(server) as world, world.client(world.ann) as ann, world.client(world.ben) as ben:
        for n in range(50):
            await ann.post_message(world.chat_id, f"message {n}")
        await ann.heartbeat()
        assert (await ben.sync(world.chat_id))["head"] == 50


async def test_pipelined_messages_keep_their_order(server: ServerProcess) -> None:
    """Messages that name their predecessors are stored in the order in which they were sent."""
    async with world_on(server) as world, world.client(world.ann) as ann:
        previous, answers = None, []
        for n in range(60):
            client_message_id = str(uuid.uuid4())
            answers.append(
                await ann.post_message(
                    world.chat_id, f"{n}", client_message_id, after_client_message_id=previous
                )
            )
            previous = client_message_id
        assert [(await ann.answered(answer))["sequence"] for answer in answers] == list(range(1, 61))


async def test_a_message_whose_predecessor_is_not_stored_is_out_of_turn(server: ServerProcess) -> None:
    """A message after one that never arrived is refused for now, and stored once that one is."""
    async with world_on(server) as world, world.unrecorded(world.ann) as ann:
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        refusal = await ann.send_message(world.chat_id, "2", second, after_client_message_id=first)
        assert (refusal["code"], refusal["temporary"]) == ("out_of_turn", True)
        assert (await ann.send_message(world.chat_id, "1", first))["sequence"] == 1
        ack = await ann.send_message(world.chat_id, "2", second, after_client_message_id=first.upper())
        assert ack["sequence"] == 2


async def test_live_frames_are_not_sent_to_who_wants_none(server: ServerProcess) -> None:
    """A connection that said live: false gets acks and pages, and no messages frame."""
    async with world_on(server) as world, world.client(world.ben, live=False) as ben:
        async with world.client(world.ann) as ann:
            await ann.send_message(world.chat_id, "hello")
            await ann.live_entry(world.chat_id, 1)
        assert (await ben.send_message(world.chat_id, "hello too"))["sequence"] == 2
        assert len((await ben.sync(world.chat_id))["entries"]) == 2
        assert ben.unasked == []


async def test_nothing_is_accepted_before_hello(server: ServerProcess, msgpack: bool) -> None:
    """A frame before hello is refused as unauthenticated under its id, and hello still works."""
    async with world_on(server) as world:
        client = world.client(world.ann, msgpack=msgpack)
        await client.open()
        refusal = await client.request("heartbeat")
        assert (refusal["type"], refusal["code"]) == ("refused", "unauthenticated")
        welcome = await client.request("hello", token=world.ann.token, device_id="phone")
        assert welcome["type"] == "welcome"
        await client.close()


@pytest.mark.parametrize(
    ("token", "device_id"), [("prl_" + "x" * 43, "phone"), ("", "phone"), (None, "tablet")]
)
async def test_a_hello_that_is_not_right_is_refused(
    server: ServerProcess, token: str | None, device_id: str
) -> None:
    """An unknown token, no token, and a token of another device open nothing."""
    async with world_on(server) as world:
        client = world.client(world.ann)
        await client.open()
        given = world.ann.token if token is None else token
        answer = await client.request("hello", token=given, device_id=device_id)
        assert (answer["type"], answer["code"]) == ("refused", "unauthenticated")
        await client.close()


async def test_what_is_wrong_is_refused_and_the_socket_stays_open(
    server: ServerProcess, msgpack: bool
) -> None:
    """Unknown types, missing and wrong fields are refused under their id, and the next request works."""
    async with world_on(server) as world, world.unrecorded(world.ann, msgpack=msgpack) as ann:
        wrong: list[tuple[str, Frame, str]] = [
            ("nonsense", {}, "unknown_type"),
            ("send_message", {"chat_id": world.chat_id}, "bad_request"),
            ("sync_request", {"chat_id": world.chat_id, "last_acked_sequence": "7"}, "bad_request"),
            ("sync_request", {"chat_id": world.chat_id, "last_acked_sequence": -1}, "bad_request"),
            ("ack", {"chat_id": world.chat_id, "last_acked_sequence": 1}, "ahead_of_log"),
            ("hello", {"token": "x", "device_id": "y"}, "bad_request"),
            ("sync", {"last_message_id": "msg_none"}, "not_found"),
        ]
        for kind, fields, code in wrong:
            refusal = await ann.request(kind, **fields)
            assert (refusal["type"], refusal["code"], refusal["temporary"]) == ("refused", code, False), kind
            assert refusal["reason"]
        assert (await ann.heartbeat())["type"] == "heartbeat_ack"


@pytest.mark.parametrize(
    "client_message_id", ["", "1", "550e8400e29b41d4a716446655440000", "550e8400-e29b-11d4-a716-446655440000"]
)
async def test_an_id_that_is_no_uuid4_is_refused(server: ServerProcess, client_message_id: str) -> None:
    """A message needs a UUIDv4 of its sender's making."""
    async with world_on(server) as world, world.unrecorded(world.ann) as ann:
        answer = await ann.request(
            "send_message", chat_id=world.chat_id, content="x", client_message_id=client_message_id
        )
        assert answer["code"] == "bad_request"


async def test_content_at_the_limit_fits_and_one_byte_more_does_not(server: ServerProcess) -> None:
    """64 KiB of text are stored; one byte more is too_large for good, and the socket stays open."""
    async with world_on(server) as world, world.client(world.ann) as ann:
        largest = "x" * limits.MESSAGE_BYTES_MAX
        assert (await ann.send_message(world.chat_id, largest))["type"] == "ack"
        refusal = await ann.send_message(world.chat_id, largest + "x")
        assert (refusal["code"], refusal["temporary"]) == ("too_large", False)
        assert (await ann.sync(world.chat_id))["head"] == 1


async def test_a_frame_that_is_too_big_closes(server: ServerProcess) -> None:
    """A frame beyond the limit closes the connection with 1009."""
    async with world_on(server) as world, world.client(world.ann) as ann:
        await ann.write_raw('{"type":"heartbeat","pad":"' + "x" * limits.FRAME_BYTES_MAX + '"}')
        assert (await ann.until_ended()).code == codes.TOO_BIG.code


@pytest.mark.parametrize("payload", ["[]", "7", "not json", b"\xc1"], ids=repr)
async def test_what_is_no_frame_closes(server: ServerProcess, payload: str | bytes) -> None:
    """A payload that is no object closes the connection with a code not to come back with."""
    async with world_on(server) as world, world.client(world.ann) as ann:
        await ann.write_raw(payload)
        assert (await ann.until_ended()).code == codes.NOT_A_FRAME.code


async def test_hostile_payloads_hurt_nobody(own_server: ServerProcess) -> None:
    """Every trap we know of is thrown at the server: it goes on for others and logs no traceback."""
    async with world_on(own_server) as world, world.client(world.ben) as ben:
        payloads: list[str | bytes] = [*(text for text in NONSENSE_TEXTS if text.isascii()), *NONSENSE_BYTES]
        for payload in payloads:
            await throw(world, payload)
        assert (await ben.send_message(world.chat_id, "still here"))["type"] == "ack"
        assert not [line for line in own_server.stderr_lines() if "Traceback" in line]


async def throw(world: World, payload: str | bytes) -> None:
    """Send one payload on a fresh connection in its codec and wait until the server has dealt with it."""
    async with world.unrecorded(world.ann, live=False, msgpack=isinstance(payload, bytes)) as ann:
        with suppress(Disconnected):
            await ann.write_raw(payload)
            await ann.heartbeat()


async def test_strangers_learn_nothing(server: ServerProcess) -> None:
    """Chats that are somebody else's and chats that do not exist are refused alike."""
    worlds = world_on(server), world_on(server)
    async with worlds[0] as world, worlds[1] as elsewhere, world.unrecorded(world.ann) as ann:
        for chat_id in (elsewhere.chat_id, "chat_" + "0" * 26, "nonsense"):
            sent = await ann.request(
                "send_message", chat_id=chat_id, content="x", client_message_id=str(uuid.uuid4())
            )
            read = await ann.request("sync_request", chat_id=chat_id, last_acked_sequence=0)
            acked = await ann.request("ack", chat_id=chat_id, last_acked_sequence=0)
            assert {answer["code"] for answer in (sent, read, acked)} == {"not_a_member"}


async def test_an_id_taken_by_another_member_is_refused(server: ServerProcess) -> None:
    """Somebody else's client_message_id in the same chat is duplicate_id and tells nothing more."""
    async with world_on(server) as world, world.client(world.ann) as ann, world.client(world.ben) as ben:
        client_message_id = str(uuid.uuid4())
        await ann.send_message(world.chat_id, "mine", client_message_id)
        refusal = await ben.send_message(world.chat_id, "mine too", client_message_id)
        assert (refusal["code"], refusal["temporary"]) == ("duplicate_id", False)
        assert "message_id" not in refusal


async def test_a_slow_network_of_crumbs_changes_nothing(server: ServerProcess, msgpack: bool) -> None:
    """Frames that arrive byte by byte are the same frames."""
    async with world_on(server) as world:
        proxy = ChaosProxy(server.port, Random(5), Chaos(split_bytes_max=5))
        async with proxy, world.client(world.ann, proxy.url, msgpack=msgpack) as ann:
            acks = [await ann.send_message(world.chat_id, f"message {n}") for n in range(5)]
            await ann.live_entry(world.chat_id, 5)
        assert [ack["sequence"] for ack in acks] == [1, 2, 3, 4, 5]


async def test_duplicated_frames_store_nothing_twice(server: ServerProcess) -> None:
    """A network that repeats whole messages in both directions leaves one entry for each."""
    async with world_on(server) as world:
        proxy = ChaosProxy(server.port, Random(6), Chaos(duplicate_share=1))
        async with proxy, world.client(world.ann, proxy.url) as ann:
            for n in range(10):
                await ann.send_message(world.chat_id, f"message {n}")
            page = await ann.sync(world.chat_id)
        assert [entry["content"] for entry in page["entries"]] == [f"message {n}" for n in range(10)]
        assert proxy.happened["duplicate"] >= 20


async def test_an_unknown_subprotocol_gets_json(server: ServerProcess) -> None:
    """Who asks for a subprotocol that we do not speak, or for none, is spoken to in JSON."""
    async with world_on(server) as world:
        url = f"{server.url}/v1/ws"
        async with world.session.ws_connect(url) as socket:
            await socket.send_str(
                msgspec.json.encode(
                    {"type": "hello", "token": world.ann.token, "device_id": "phone", "id": 1}
                ).decode()
            )
            assert msgspec.json.decode(await socket.receive_str())["type"] == "welcome"


async def test_another_origin_is_refused(server: ServerProcess) -> None:
    """A page of some other site cannot open a socket here."""
    async with world_on(server) as world:
        with pytest.raises(WSServerHandshakeError) as refused:
            await world.session.ws_connect(f"{server.url}/v1/ws", origin="https://elsewhere.example")
        assert refused.value.status == 403


async def test_a_revoked_session_is_closed_at_once(server: ServerProcess) -> None:
    """Deleting a session closes its sockets, and its token opens nothing any more."""
    async with world_on(server) as world, world.client(world.ann) as ann:
        desk = await world.device_of(world.ann, "desk")
        path = f"/v1/sessions/{world.ann.session_id}"
        answer = await world.http.of(desk).request("DELETE", path)
        assert answer.status in (200, 204)
        assert (await ann.until_ended()).code == codes.REVOKED.code
        with pytest.raises(Unexpected, match="unauthenticated"):
            await world.client(world.ann).connect()


async def test_sigterm_drains(tmp_path: Path, mode: str) -> None:
    """What was taken is finished, sockets are told to come back, and the exit status is 0."""
    with ServerProcess(tmp_path / "data", mode_environment(mode)) as server:
        async with world_on(server) as world, world.client(world.ann) as ann:
            answers = [await ann.post_message(world.chat_id, f"message {n}") for n in range(100)]
            await ann.answered(answers[0])
            stopped = asyncio.create_task(asyncio.to_thread(server.terminate))
            assert (await ann.until_ended()).code == codes.GOING_AWAY.code
            assert await stopped == 0
            world.assert_promise_kept()
        assert server.stdout_lines() == [f"parley ready on {server.url}"]


async def test_a_socket_that_never_says_hello_hears_nothing(server: ServerProcess) -> None:
    """A connection without hello is told of no message."""
    async with world_on(server) as world:
        silent = world.unrecorded(world.ben)
        await silent.open()
        await world.fill(3)
        refusal = await silent.request("heartbeat")
        assert (refusal["code"], silent.unasked) == ("unauthenticated", [])
        await silent.close()
