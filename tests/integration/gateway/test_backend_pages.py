"""The pages for other people's products: their commands work as they stand, and so does the example."""

import asyncio
import importlib.util
import os
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar, web

from parley.client import connect
from parley.model import Scope
from tests.integration.gateway.serving import Place

ROOT = Path(__file__).parents[3]
SECRET = "the secret that both of them have, long enough"


def commands(page: str) -> str:
    """What a reader would type, as one script that ends at the first failure."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return "set -e -o pipefail\n" + "".join(blocks).replace("\n$ ", "\n").removeprefix("$ ")


@pytest.mark.timeout(180)
async def test_the_commands_of_the_page_work(place: Place) -> None:
    """Every line of "Post from your backend", in its order, beside a server."""
    page = (ROOT / "docs/post-from-your-backend.md").read_text()
    async with place.serving() as served:
        script = commands(page).replace("http://127.0.0.1:8080", served.url)
        assert script.count("curl") == page.count("curl ") > 8
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PARLEY_DATA": str(place.folder),
            "HOME": os.environ.get("HOME", "/"),
        }
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told, _ = await shell.communicate()
        assert shell.returncode == 0, told.decode()
        contents = ["deploy 4711 is live", "disk 91% full", "welcome"]
        for content in contents:
            found = served.sqlite.database.reader.execute(
                "SELECT count(*) FROM messages WHERE content = ?", (content,)
            ).fetchall()
            assert found == [(1,)], content


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_backend", ROOT / "examples/backend/backend.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_two_users_of_the_example_chat(place: Place) -> None:
    """They log in to the product, which gives them tokens and a chat; strangers get neither."""
    backend: Any = example()
    settings = {
        "PARLEY_AUTH_JWT_SECRET": SECRET,
        "PARLEY_AUTH_JWT_ISSUER": backend.ISSUER,
        "PARLEY_AUTH_JWT_AUDIENCE": backend.AUDIENCE,
    }
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(place.serving(settings))
        [shop] = await served.people("shop")
        admin, _ = await served.app.identities.api_tokens.make(shop.user_id, "shop", [Scope.ADMIN])
        runner = web.AppRunner(backend.make_app(SECRET, admin, served.url))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"

        async def browser(name: str | None) -> ClientSession:
            http = ClientSession(url, cookie_jar=CookieJar(unsafe=True))
            await stack.enter_async_context(http)
            if name is not None:
                async with http.post("/login", json={"name": name, "password": name}) as answer:
                    assert answer.status == 200
            return http

        async def token_of(http: ClientSession) -> str:
            async with http.get("/chat-token", raise_for_status=True) as answer:
                return str((await answer.json())["token"])

        stranger, anns, bens = await browser(None), await browser("ann"), await browser("ben")
        for method, path in (("GET", "/chat-token"), ("POST", "/chats/ben")):
            async with stranger.request(method, path) as refused:
                assert refused.status == 401, path
        async with anns.post("/chats/ben", raise_for_status=True) as answer:
            chat = await answer.json()
        async with bens.post("/chats/ann", raise_for_status=True) as answer:
            assert (await answer.json())["chat_id"] == chat["chat_id"]
        ann = await stack.enter_async_context(connect(served.url, lambda: token_of(anns), device_id="laptop"))
        ben = await stack.enter_async_context(connect(served.url, lambda: token_of(bens), device_id="phone"))
        assert chat["me"] == ann.user_id
        assert chat["people"] == {ann.user_id: "Ann Example", ben.user_id: "Ben Example"}
        await ann.chat(chat["chat_id"]).send("hello from the shop")
        async for entry in ben.chat(chat["chat_id"]):
            assert entry.content == "hello from the shop"
            break


async def test_the_example_serves_its_page(place: Place) -> None:
    """The page names its script, and no other file of the folder is served."""
    backend: Any = example()
    runner = web.AppRunner(backend.make_app(SECRET, "", "http://127.0.0.1:1"))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as http:
            async with http.get("/") as page:
                assert 'src="chat.js"' in await page.text()
            for path, status in (("/chat.js", 200), ("/backend.py", 404), ("/chat.html", 404)):
                async with http.get(path) as answer:
                    assert answer.status == status, path
    finally:
        await runner.cleanup()
