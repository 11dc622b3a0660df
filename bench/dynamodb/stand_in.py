"""A stand-in for DynamoDB: accepts transactions, updates and batches after a delay, and forwards the rest.

DynamoDB Local takes 2 ms for each message, which hides every other cost. With this stand-in a node shows
its own cost. It stores nothing: use it only to measure.
"""

from __future__ import annotations

import argparse
import asyncio

import aiohttp
import uvloop
from aiohttp import web

BODY_BYTES_MAX = 8 * 1024 * 1024
ACCEPTED = ("TransactWriteItems", "UpdateItem", "BatchWriteItem")
"""A mark of entries that it did not store must not reach the store behind it."""
PASSED_ON = ("Authorization", "Content-Type", "X-Amz-Date", "X-Amz-Target")
CONTENT_TYPE = "application/x-amz-json-1.0"


class StandIn:
    def __init__(self, behind: str, delay_seconds: float) -> None:
        self._behind = behind
        self._delay_seconds = delay_seconds
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("X-Amz-Target", "").endswith(ACCEPTED):
            await asyncio.sleep(self._delay_seconds)
            return web.Response(body=b"{}", content_type=CONTENT_TYPE)
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        async with self._session.post(self._behind, data=body, headers=headers) as answer:
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )


async def no_metrics(_: web.Request) -> web.Response:
    return web.Response(text="")


async def serve(port: int, behind: str, delay_seconds: float) -> None:
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.add_routes([web.post("/", StandIn(behind, delay_seconds).answer), web.get("/metrics", no_metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"parley ready on http://127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--behind", required=True)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.behind, options.delay_ms / 1_000))


if __name__ == "__main__":
    main()
