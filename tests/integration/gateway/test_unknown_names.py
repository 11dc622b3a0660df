"""What a request says that its route does not know is refused by its name: nothing is left out in silence."""

from typing import Any

from parley.gateway.api import ROUTES
from parley.gateway.file_transfers import TRANSFERS
from parley.gateway.system import OPENAPI, WEBSOCKET
from tests.integration.gateway.serving import Place, assert_refused, message

PUSH = "https://push.example.com/1"
BODIES: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/v1/chats", {"type": "group", "member_ids": [], "titel": "Tea"}, "titel"),
    ("POST", "/v1/chats/{chat}/messages", message("hi", replyTo="msg_1"), "replyTo"),
    (
        "PATCH",
        "/v1/me",
        {"do_not_disturb": {"from": "22:00", "to": "07:00", "timezone": "UTC", "days": 5}},
        "`days` - at `$.do_not_disturb`",
    ),
    (
        "PUT",
        "/v1/me/push/phone",
        {
            "provider": "webpush",
            "subscription": {"endpoint": PUSH, "keys": {"p256dh": "", "auth": "", "x": 1}},
        },
        "`x` - at `$.subscription.keys`",
    ),
    ("POST", "/v1/admin/dlq/replay", {"filter": {"eror": "unreachable"}}, "`eror` - at `$.filter`"),
    ("POST", "/v1/admin/users/{ann}/disable", {"reason": "spam"}, "reason"),
    ("DELETE", "/v1/blocks/{ann}", {"for_ever": True}, "for_ever"),
]


async def test_an_unknown_field_is_refused_by_its_name(place: Place) -> None:
    """Also within objects, and where an operation takes no body at all."""
    async with place.serving() as served:
        ann = await served.operator("ann")
        chat = await served.as_(ann).create_group()
        for method, path, body, named in BODIES:
            answer = await served.as_(ann).request(method, path.format(chat=chat, ann=ann.user_id), body)
            assert_refused(answer, 400, "bad_request")
            assert named in answer.body["reason"], path


async def test_an_unknown_query_parameter_is_refused_by_its_name(place: Place) -> None:
    """On every route, also for the bytes of files and at the door of the WebSocket."""
    asked = [
        (one.method, one.path.replace("{", "").replace("}", ""))
        for one in (*ROUTES, *TRANSFERS, OPENAPI, WEBSOCKET)
    ]
    async with place.serving({"PARLEY_LIMITS_RATES": "off"}) as served:
        client = served.as_(await served.operator("ann"))
        for method, path in asked:
            answer = await client.request(method, path, limitt=5, afterr="x")
            assert (answer.status, path) == (400, path)
            assert_refused(answer, 400, "bad_request")
            assert "afterr, limitt" in answer.body["reason"], path


async def test_what_a_browser_gives_for_push_is_known(place: Place) -> None:
    """`PushManager.subscribe` adds an `expirationTime`, which is null nearly always."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        subscription = {"endpoint": PUSH, "expirationTime": None, "keys": {"p256dh": "", "auth": ""}}
        body = {"provider": "webpush", "subscription": subscription}
        answer = await served.as_(ann).put("/v1/me/push/phone", body)
        assert "expirationTime" not in answer.body["reason"]


async def test_an_empty_object_is_no_body(place: Place) -> None:
    """Some HTTP libraries cannot send nothing."""
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        answer = await served.as_(ann).put(f"/v1/blocks/{ben.user_id}", {})
        assert answer.status == 200


async def test_a_probe_may_say_more(place: Place) -> None:
    """Balancers add to the address of a health check, and mail programs to that of a page."""
    async with place.serving() as served:
        for path in ("/healthz", "/readyz", "/metrics", "/link"):
            assert (await served.http.get(path, utm="mail")).status == 200
