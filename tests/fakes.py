"""Stand-ins that several tests build on: a fake answers what its test needs and is asked nothing else."""

from collections.abc import Sequence

from parley.model import AppendResult, Draft, Head, Page, Persisted


class UnaskedLog:
    """A log of which each question is a surprise: a fake overrides those that its test expects."""

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        raise AssertionError("nobody asks")

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        raise AssertionError("nobody asks")

    async def read_before(self, chat_id: str, before: int, limit: int) -> Page:
        raise AssertionError("nobody asks")

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        raise AssertionError("nobody asks")

    async def find_key(self, chat_id: str, client_key: bytes) -> bytes | None:
        raise AssertionError("nobody asks")

    async def find_message(self, message_id: str, chat_ids: Sequence[str]) -> tuple[str, int] | None:
        raise AssertionError("nobody asks")

    async def seal(self) -> list[Persisted]:
        raise AssertionError("nobody asks")
