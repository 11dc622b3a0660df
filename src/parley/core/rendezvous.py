"""Whose chat is whose, without anybody keeping a list: rendezvous hashing.

Each node weighs each chat by a hash of both names; the heaviest has it. Who knows the same nodes comes to the
same answer, and when a node comes or goes only the chats that it gains or leaves change hands.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

WEIGHT_BYTES = 8


def ranked(chat_id: str, node_ids: Iterable[str]) -> list[str]:
    """The nodes in the order in which they should have this chat: its owner, then who stands in."""
    return sorted(node_ids, key=lambda node_id: weight(chat_id, node_id), reverse=True)


def owner(chat_id: str, node_ids: Iterable[str]) -> str | None:
    """The first of `ranked`; None when there are no nodes."""
    return max(node_ids, key=lambda node_id: weight(chat_id, node_id), default=None)


def weight(chat_id: str, node_id: str) -> tuple[bytes, str]:
    """How much a node draws a chat; the same on every machine, and no two nodes alike."""
    return blake2b(f"{node_id}\n{chat_id}".encode(), digest_size=WEIGHT_BYTES).digest(), node_id
