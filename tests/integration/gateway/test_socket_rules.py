"""The rules of one WebSocket: what may be said when, and what happens to what may not."""

from typing import Any

import msgspec
import pytest

from parley.wire.limits import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, WELCOME_LIMITS
from tests.harness.clients import Frame, RawClient
from tests.integration.gateway.bare import BINARY, TEXT, BareSocket, masked
from tests.integration.gateway.serving import Place, new_id


def send(chat_id: str, content: str = "hi", **fields: Any) -> Frame:
    """A `send_message` frame with an id of its own."""
    return {
        "type": "send_message",
        "chat_id": chat_id,
        "content": content,
        "client_message_id": new_id(),
        **fields,
    }


async def test_hello_is_welcomed(place: Place) -> None:
    """The welcome says who one is, what time it is, when to beat, and the limits."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        async with served.client(ann) as client:
            welcome = client.welcome
        assert (welcome["user_id"], welcome["device_id"]) == (ann.user_id, "phone")
        assert (welcome["session_id"], welcome["heartbeat_seconds"]) == (ann.session_id, 30)
        assert welcome["limits"] == WELCOME_LIMITS
        assert welcome["server_time"].endswith("Z")


async def test_nothing_is_accepted_before_hello(place: Place) -> None:
    """Every other frame is refused with its id, and hello still works afterwards."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        client = served.client(ann)
        await client.open()
        for kind, fields in EVERY_REQUEST:
            refused = await client.request(kind, chat_id=chat, **fields)
            assert (refused["type"], refused["code"]) == ("refused", "unauthenticated")
        welcome = await client.request("hello", token=ann.token, device_id=ann.device_id)
        assert welcome["type"] == "welcome"
        await client.close()


EVERY_REQUEST: list[tuple[str, dict[str, Any]]] = [
    ("send_message", {"content": "x", "client_message_id": "00000000-0000-4000-8000-000000000000"}),
    ("sync_request", {"last_acked_sequence": 0}),
    ("sync", {"last_message_id": "msg_x"}),
    ("sync_overview", {}),
    ("ack", {"last_acked_sequence": 0}),
    ("delivery_receipt", {"message_id": "msg_x", "delivered_at": "2026-01-01T00:00:00Z"}),
    ("read_receipt", {"read_up_to": 1}),
    ("heartbeat", {}),
]
ABOUT_A_CHAT = [
    *(one for one in EVERY_REQUEST if one[0] not in ("sync", "sync_overview", "heartbeat")),
    ("typing_start", {}),
    ("typing_stop", {}),
]


async def test_hello_is_said_once(place: Place) -> None:
    """A second hello is refused and changes nothing."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        async with served.client(ann) as client:
            again = await client.request("hello", token=ben.token, device_id=ben.device_id)
            assert (again["type"], again["code"]) == ("refused", "bad_request")
            assert (await client.heartbeat())["type"] == "heartbeat_ack"


@pytest.mark.parametrize("wrong", ["token", "device"])
async def test_a_wrong_hello_closes_with_a_code_for_a_new_token(place: Place, wrong: str) -> None:
    """A token that is unknown or bound to another device is refused, and the socket closed with 4101."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        token = "prl_unknown" if wrong == "token" else ann.token
        device = "tablet" if wrong == "device" else ann.device_id
        client = served.client(ann)
        await client.open()
        refused = await client.request("hello", token=token, device_id=device)
        assert (refused["code"], refused["temporary"]) == ("unauthenticated", False)
        assert (await client.until_ended()).code == 4101


@pytest.mark.parametrize("msgpack", [False, True])
async def test_both_codecs_say_the_same(place: Place, msgpack: bool) -> None:
    """A message with every kind of letter comes back equal in JSON and MessagePack, live and by sync."""
    content = "\0 é 😀 \u2028"
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ann, msgpack=msgpack) as sender, served.client(ben) as reader:
            ack = await sender.send_message(chat, content)
            live = await reader.live_entry(chat, 1)
            own = await sender.live_entry(chat, 1)
            batch = await sender.sync(chat)
        assert (ack["type"], live["content"]) == ("ack", content)
        assert own == live == batch["entries"][0]
        assert live["message_id"] == ack["message_id"]


async def test_an_unknown_subprotocol_speaks_json(place: Place) -> None:
    """Without a known subprotocol the frames are JSON texts."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        bare = BareSocket(served.port)
        await bare.open("something.else")
        assert (await bare.hello(ann))["type"] == "welcome"
        bare.close()


async def test_an_answer_names_its_request(place: Place) -> None:
    """`re` is the `id` as it was given, any number; without an id there is no `re`."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open()
        assert "re" not in await bare.hello(ann, live=False)
        for number in (0, 1, -7, 2**53, 1.5):
            bare.send(
                [
                    {"type": "heartbeat", "id": number},
                    send(chat, id=number),
                    {"type": "nothing", "id": number},
                ]
            )
            answers = await bare.frames(3)
            assert [answer["re"] for answer in answers] == [number] * 3
        bare.send([send(chat), {"type": "heartbeat"}, {"type": "nothing"}])
        ack, beat, refused = await bare.frames(3)
        assert ("re" in ack, "re" in beat, refused["re"]) == (False, False, None)
        bare.close()


@pytest.mark.parametrize("name", ["chat_id", "conversation_id", "conv_id"])
async def test_a_chat_has_three_names(place: Place, name: str) -> None:
    """Each request accepts any of them, and answers say chat_id."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = {name: await served.as_(ann).create_group()}
        async with served.client(ann) as client:
            ack = await client.request("send_message", content="x", client_message_id=new_id(), **chat)
            batch = await client.request("sync_request", last_acked_sequence=0, **chat)
            await client.tell("ack", last_acked_sequence=1, **chat)
            await client.tell("read_receipt", read_up_to=1, **chat)
            overview = await client.request("sync_overview")
            assert {ack["chat_id"], batch["chat_id"]} == set(chat.values())
            (listed,) = overview["chats"]
            assert (listed["last_acked_sequence"], listed["read_up_to"]) == (1, 1)
            assert [frame for frame in client.unasked if frame["type"] == "refused"] == []


async def test_a_request_about_no_chat_is_wrong(place: Place) -> None:
    """A field that is missing is told as such, not as a chat that one is not in."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        async with served.client(ann) as client:
            for kind, fields in ABOUT_A_CHAT:
                for named in ({}, {"chat_id": ""}):
                    refused = await client.request(kind, **fields, **named)
                    assert (refused["type"], refused["code"]) == ("refused", "bad_request"), kind
                    assert "chat_id" in refused["reason"]


async def test_unknown_fields_are_ignored(place: Place) -> None:
    """A newer client may say more than this server knows."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        async with served.client(ann) as client:
            ack = await client.send_message(chat, "x", mood="good", nested={"a": [1, {"b": None}]})
            assert ack["type"] == "ack"


@pytest.mark.parametrize("msgpack", [False, True])
async def test_an_unknown_type_is_refused(place: Place, msgpack: bool) -> None:
    """A frame of no known type, or of none at all, is refused with its id, and the socket goes on."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        async with served.client(ann, msgpack=msgpack) as client:
            for number, frame in enumerate(NO_TYPES, 1000):
                await client.write({**frame, "id": number})
                refused = await told(client, number)
                assert (refused["type"], refused["code"]) == ("refused", "unknown_type")
            assert (await client.heartbeat())["type"] == "heartbeat_ack"


ODD_TYPES: list[Any] = ["dance", "", "Heartbeat", "welcome", 7, None, ["ack"], {}]
NO_TYPES: list[Frame] = [{}, *({"type": odd} for odd in ODD_TYPES)]


async def told(client: RawClient, number: int) -> Frame:
    """The frame that answers a request which the client does not know it has made."""
    await client.until(lambda c: any(frame.get("re") == number for frame in c.unasked))
    return next(frame for frame in client.unasked if frame.get("re") == number)


WRONG_FIELDS: list[Frame] = [
    {"type": "send_message"},
    {"type": "send_message", "content": "x", "client_message_id": 5},
    {"type": "send_message", "content": None, "client_message_id": "x"},
    {"type": "send_message", "content": "x", "client_message_id": "not a uuid", "chat_id": "c"},
    {"type": "send_message", "content": "x", "client_message_id": "00000000-0000-4000-8000-000000000000"},
    {"type": "sync_request"},
    {"type": "sync_request", "chat_id": "c", "last_acked_sequence": -1},
    {"type": "sync_request", "chat_id": "c", "last_acked_sequence": 1.5},
    {"type": "sync_request", "chat_id": "c", "last_acked_sequence": "1"},
    {"type": "sync_request", "chat_id": "c", "last_acked_sequence": 2**53},
    {"type": "sync_request", "chat_id": "c", "last_acked_sequence": 0, "limit": 0},
    {"type": "sync_request", "chat_id": "c", "last_acked_sequence": 0, "epoch": 0},
    {"type": "sync_request", "chat_id": ["c"], "last_acked_sequence": 0},
    {"type": "sync"},
    {"type": "sync", "last_message_id": 7},
    {"type": "sync_overview", "changed_since": "nonsense"},
    {"type": "sync_overview", "limit": -1},
    {"type": "ack", "chat_id": "c"},
    {"type": "ack", "chat_id": "c", "last_acked_sequence": None},
    {"type": "delivery_receipt", "chat_id": "c"},
    {"type": "read_receipt", "chat_id": "c", "read_up_to": None},
    {"type": "read_receipt", "chat_id": "c", "read_up_to": -1},
]


@pytest.mark.parametrize("msgpack", [False, True])
async def test_wrong_fields_are_refused_and_the_socket_stays_open(place: Place, msgpack: bool) -> None:
    """Each wrong field is a bad request with its id, answered or not."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        async with served.client(ann, msgpack=msgpack) as client:
            for frame in WRONG_FIELDS:
                fields = {name: value for name, value in frame.items() if name != "type"}
                refused = await client.request(frame["type"], **fields)
                assert (refused["type"], refused["code"]) == ("refused", "bad_request"), frame
                assert refused["reason"]
            assert (await client.heartbeat())["type"] == "heartbeat_ack"


NO_OBJECTS = [
    b"[]",
    b"1",
    b'"text"',
    b"null",
    b"",
    b"nonsense",
    b"{",
    b"\xff\xfe",
    b'{"type":"heartbeat"}}',
    b"[" * 9999,
]


@pytest.mark.parametrize("greeted", [True, False])
async def test_what_is_no_object_closes_with_4200(place: Place, greeted: bool) -> None:
    """A JSON payload that is no object ends the connection for good, before hello and after."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        for payload in NO_OBJECTS:
            bare = BareSocket(served.port)
            await bare.open()
            if greeted:
                await bare.hello(ann)
            bare.send_raw(masked(TEXT, payload))
            assert await bare.until_closed() == ([], 4200), payload
            bare.close()


async def test_what_is_no_messagepack_object_closes_with_4200(place: Place) -> None:
    """The same holds for binary frames."""
    async with place.serving() as served:
        for payload in (b"\xc0", b"\x93\x01\x02\x03", b"\xc1", b"", b"\xdf\xff\xff\xff\xff", b"\x91" * 9999):
            bare = BareSocket(served.port)
            await bare.open("parley.v1.msgpack")
            bare.send_raw(masked(BINARY, payload))
            assert await bare.until_closed() == ([], 4200), payload
            bare.close()


@pytest.mark.parametrize("kind", [TEXT, BINARY])
async def test_a_frame_too_big_closes_with_1009(place: Place, kind: int) -> None:
    """One byte over the limit is too much, and the limit itself is not."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        fits = msgspec.json.encode({"type": "nothing", "id": 1, "pad": ""})
        padded = fits.replace(b'""', b'"' + b"x" * (FRAME_BYTES_MAX - len(fits)) + b'"')
        bare.send_raw(masked(kind, padded))
        assert (await bare.frame())["code"] == "unknown_type"
        bare.send_raw(masked(kind, padded.replace(b"x", b"xx", 1)))
        assert await bare.until_closed() == ([], 1009)
        bare.close()


async def test_content_over_the_limit_is_too_large(place: Place) -> None:
    """64 KiB of content pass, one byte more is refused, and the socket stays open."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        async with served.client(ann) as client:
            assert (await client.send_message(chat, "x" * MESSAGE_BYTES_MAX))["type"] == "ack"
            refused = await client.send_message(chat, "x" * (MESSAGE_BYTES_MAX + 1))
            assert refused["code"] == "too_large"
            assert (await client.heartbeat())["type"] == "heartbeat_ack"


async def test_frames_without_an_answer_are_still_refused(place: Place) -> None:
    """An ack or a receipt of a foreign chat is refused with its id."""
    async with place.serving() as served:
        ann, eve = await served.people("ann", "eve")
        chat = await served.as_(ann).create_group()
        async with served.client(eve) as client:
            for chat_id in (chat, "chat_unknown"):
                for kind, fields in (
                    ("ack", {"last_acked_sequence": 0}),
                    ("read_receipt", {"read_up_to": 0}),
                    ("delivery_receipt", {"message_id": "msg_x"}),
                    ("sync_request", {"last_acked_sequence": 0}),
                    ("send_message", {"content": "x", "client_message_id": new_id()}),
                ):
                    refused = await client.request(kind, chat_id=chat_id, **fields)
                    assert (refused["code"], refused["type"]) == ("not_a_member", "refused")


async def test_an_answer_means_that_what_was_sent_before_is_visible(either: Place) -> None:
    """Sends and requests in one packet: the answers come after the acks and show every message."""
    async with either.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        sync = {"type": "sync_request", "chat_id": chat, "last_acked_sequence": 0}
        for round_number in range(1, 6):
            bare.send(
                [
                    send(chat),
                    send(chat),
                    sync,
                    send(chat),
                    {"type": "sync_overview"},
                    send(chat),
                    {"type": "heartbeat"},
                ]
            )
            answers = await bare.frames(7)
            assert [answer["type"] for answer in answers] == [
                *("ack", "ack", "message_batch", "ack", "overview", "ack", "heartbeat_ack")
            ]
            seen = round_number * 4
            assert (answers[2]["head"], answers[4]["chats"][0]["head"]) == (seen - 2, seen - 1)
            assert answers[6]["heads"] == {chat: seen}
        bare.close()


async def test_an_ack_is_visible_to_the_overview_that_follows(either: Place) -> None:
    """Positions sent right before an overview, in the same packet, are in it."""
    async with either.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        for sequence in range(1, 10):
            ack = {"type": "ack", "chat_id": chat, "last_acked_sequence": sequence}
            read = {"type": "read_receipt", "chat_id": chat, "read_up_to": sequence}
            bare.send([send(chat), {"type": "heartbeat"}])
            await bare.frames(2)
            bare.send([ack, read, {"type": "sync_overview"}])
            (listed,) = (await bare.frame())["chats"]
            assert (listed["last_acked_sequence"], listed["read_up_to"]) == (sequence, sequence)
        bare.close()


async def test_a_sender_gets_its_ack_before_its_entry(either: Place) -> None:
    """On the sending socket each ack comes before the live entry of the same message."""
    async with either.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        bares = [BareSocket(served.port) for _ in range(3)]
        for bare, person in zip(bares, (ann, ann, ben), strict=True):
            await bare.open()
            await bare.hello(person)
        for _ in range(10):
            for bare in bares:
                bare.send([send(chat) for _ in range(10)])
        for bare in bares:
            acked: set[str] = set()
            own, through = 0, 0
            while own < 100 or through < 300:
                frame = await bare.frame()
                if frame["type"] == "ack":
                    own += 1
                    assert frame["sequence"] > through, "its entry came before"
                    acked.add(frame["message_id"])
                else:
                    assert frame["entries"][0]["sequence"] == through + 1
                    through = frame["entries"][-1]["sequence"]
            bare.close()
