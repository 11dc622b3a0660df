"""What an operator is shown of people and chats, whatever the engine."""

from __future__ import annotations

from msgspec import Struct


class ListedUser(Struct):
    user_id: str
    username: str
    display_name: str
    is_operator: bool
    created_at: str
    chats: int
    sessions: int


class ListedChat(Struct):
    """`title` of a direct chat is who is in it; `sequence_counter` is None when the counter is missing."""

    chat_id: str
    type: str
    title: str | None
    members: int
    sequence_counter: int | None
    created_at: str


class ListedMember(Struct):
    user_id: str
    username: str | None
    role: str
    joined_at: str
    joined_sequence: int
    last_acked_sequence: int
    read_up_to: int
