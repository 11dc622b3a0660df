"""The server without the job that hashes the logs: what it is compared with to see what that job costs."""

from unittest.mock import patch

from parley.chats.log_hasher import LogHasher
from parley.cli import main


async def rest(hasher: LogHasher) -> None:
    """Follow no chat."""


if __name__ == "__main__":
    with (
        patch.object(LogHasher, "follow_news", rest),
        patch.object(LogHasher, "persisted", lambda hasher, news: None),
    ):
        main()
