"""A sender in a process of its own, to be killed.

    python -m tests.integration.sdk_process URL TOKEN DEVICE CHAT OUTBOX LAST FIRST

Sends the numbers from FIRST to LAST into a chat and prints a line for each that its outbox file keeps, then
waits for the acks of these and of what an earlier run left behind.
"""

import asyncio
import sys

from parley.client import connect
from tests.integration.sdk import QUICK


async def main(url: str, token: str, device_id: str, chat_id: str, outbox: str, numbers: range) -> None:
    async with connect(
        url, token, device_id=device_id, outbox=outbox, timing=QUICK, start_offline=True
    ) as me:
        waiting = me.unsent
        for number in numbers:
            sending = me.chat(chat_id).send(str(number))
            await sending.kept()
            print(number, sending.client_message_id, flush=True)
            waiting.append(sending)
        for sending in waiting:
            await sending
        print("done", flush=True)


if __name__ == "__main__":
    url, token, device_id, chat_id, outbox, last, first = sys.argv[1:]
    asyncio.run(main(url, token, device_id, chat_id, outbox, range(int(first), int(last) + 1)))
