"""A bare aiohttp WebSocket server that decodes each frame and answers it, and does nothing else.

It is the ceiling of any server on this stack and this machine.
"""

from __future__ import annotations

import argparse
import asyncio

import msgspec
import uvloop
from aiohttp import WSMsgType, web
from msgspec import Struct


class Sent(Struct):
    type: str
    chat_id: str = ""
    client_message_id: str = ""
    content: str = ""


class Answer(Struct, tag_field="type", tag="ack"):
    chat_id: str
    client_message_id: str
    content: str


WELCOME = '{"type":"welcome"}'


async def echo(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(compress=False, protocols=("parley.v1",))
    await socket.prepare(request)
    decode = msgspec.json.Decoder(Sent).decode
    encode = msgspec.json.Encoder().encode
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            break
        frame = decode(message.data)
        if frame.type == "hello":
            await socket.send_str(WELCOME)
        else:
            await socket.send_frame(
                encode(Answer(frame.chat_id, frame.client_message_id, frame.content)), WSMsgType.TEXT
            )
    return socket


async def no_metrics(_: web.Request) -> web.Response:
    return web.Response(text="")


async def serve(port: int) -> None:
    app = web.Application()
    app.add_routes([web.get("/v1/ws", echo), web.get("/metrics", no_metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"parley ready on http://127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
