"""Which node owns a chat, without a table of owners: rendezvous hashing.

A hash of node and chat gives a weight; the node with the highest weight owns the chat. Nodes with the
same list get the same answer. When a node joins or leaves, only the chats that it gains or loses move.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

WEIGHT_BYTES = 8


def ranked(chat_id: str, node_ids: Iterable[str]) -> list[str]:
    """The nodes in the order of preference for this chat: its owner first, then the replacements."""
    return sorted(node_ids, key=lambda node_id: weight(chat_id, node_id), reverse=True)


def owner(chat_id: str, node_ids: Iterable[str]) -> str | None:
    """The first of `ranked`; None when there are no nodes."""
    return max(node_ids, key=lambda node_id: weight(chat_id, node_id), default=None)


def weight(chat_id: str, node_id: str) -> tuple[bytes, str]:
    """The weight of a node for a chat: the same on every machine, and different for every node."""
    return blake2b(f"{node_id}\n{chat_id}".encode(), digest_size=WEIGHT_BYTES).digest(), node_id
