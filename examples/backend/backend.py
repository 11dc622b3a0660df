"""A product with its own login whose users chat on a Parley server: all that its backend has to do.

    CHAT_SECRET=… CHAT_TOKEN=… CHAT_URL=http://127.0.0.1:8080 python examples/backend/backend.py

Its login is a toy (everybody whose password is their name). What matters:

chat_token    for somebody who is logged in *here*, signs a JSON Web Token that says who they are
chat_with     asks the chat server for the chat of two people, with the token of this program

The page is chat.html and chat.js beside this file. See docs/your-users.md.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import jwt
from aiohttp import ClientSession, web

ISSUER = "https://shop.example.com"
AUDIENCE = "parley"
TOKEN_SECONDS = 300
COOKIE = "shop_login"
PEOPLE = {"ann": "Ann Example", "ben": "Ben Example"}
FOLDER = Path(__file__).parent

LOGINS = web.AppKey("logins", dict[str, str])
SECRET = web.AppKey("secret", str)
TOKEN = web.AppKey("token", str)
CHAT_URL = web.AppKey("chat_url", str)


async def log_in(request: web.Request) -> web.Response:
    """The login that the product has anyway."""
    asked = await request.json()
    name = asked.get("name")
    if name not in PEOPLE or asked.get("password") != name:
        raise web.HTTPUnauthorized
    login = secrets.token_urlsafe()
    request.app[LOGINS][login] = name
    response = web.json_response({"name": name, "others": sorted(PEOPLE.keys() - {name})})
    response.set_cookie(COOKIE, login, httponly=True, samesite="Strict")
    return response


def who_is(request: web.Request) -> str:
    name = request.app[LOGINS].get(request.cookies.get(COOKIE, ""))
    if name is None:
        raise web.HTTPUnauthorized
    return name


async def chat_token(request: web.Request) -> web.Response:
    """A token for the chat server, for whoever is logged in here. Clients ask again before it expires."""
    name = who_is(request)
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": name,
        "name": PEOPLE[name],
        "exp": int(time.time()) + TOKEN_SECONDS,
    }
    token = jwt.encode(claims, request.app[SECRET], "HS256")
    return web.json_response({"token": token, "url": request.app[CHAT_URL], "seconds": TOKEN_SECONDS})


async def chat_with(request: web.Request) -> web.Response:
    """The chat of two people, made if it is not there. The people, too: neither needs to have been online."""
    names = [who_is(request), request.match_info["name"]]
    if names[1] not in PEOPLE or names[0] == names[1]:
        raise web.HTTPNotFound
    headers = {"Authorization": f"Bearer {request.app[TOKEN]}"}
    async with ClientSession(f"{request.app[CHAT_URL]}/v1/admin/", headers=headers) as server:
        user_ids = {}
        for name in names:
            profile = {"display_name": PEOPLE[name]}
            async with server.put(f"users/{name}", json=profile, raise_for_status=True) as answer:
                user_ids[name] = (await answer.json())["user_id"]
        asked = {"type": "direct", "member_ids": list(user_ids.values())}
        async with server.post("chats", json=asked, raise_for_status=True) as answer:
            chat_id = (await answer.json())["chat_id"]
    people = {user_id: PEOPLE[name] for name, user_id in user_ids.items()}
    return web.json_response({"chat_id": chat_id, "me": user_ids[names[0]], "people": people})


async def page(request: web.Request) -> web.FileResponse:
    return web.FileResponse(FOLDER / request.match_info.get("file", "chat.html"))


def make_app(secret: str, token: str, chat_url: str) -> web.Application:
    app = web.Application()
    app[LOGINS], app[SECRET], app[TOKEN], app[CHAT_URL] = {}, secret, token, chat_url
    app.router.add_get("/", page)
    app.router.add_get("/{file:chat[.]js}", page)
    app.router.add_post("/login", log_in)
    app.router.add_get("/chat-token", chat_token)
    app.router.add_post("/chats/{name}", chat_with)
    return app


if __name__ == "__main__":
    settings = (os.environ[name] for name in ("CHAT_SECRET", "CHAT_TOKEN", "CHAT_URL"))
    web.run_app(make_app(*settings), host="127.0.0.1", port=8081)
