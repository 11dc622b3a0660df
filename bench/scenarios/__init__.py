"""The scenarios, by name, in the order of the table."""

from __future__ import annotations

from bench.scenarios import (
    abuse,
    amended,
    archive,
    audience,
    background,
    catching_up,
    conversations,
    flat,
    hot_chat,
    idle,
    persist,
    presence,
    receipts,
    returning,
    search,
    slow,
)
from bench.stage import Scenario

SCENARIOS: dict[str, Scenario] = {
    "hot_chat": hot_chat.window_1,
    "hot_chat_16": hot_chat.window_16,
    "hot_chat_16_ordered": hot_chat.window_16_in_order,
    "persist": persist.persist,
    "one_to_one": conversations.one_to_one,
    "many_chats": conversations.many_chats,
    "members": audience.members_online,
    "catch_up": catching_up.catch_up,
    "amended": amended.amended,
    "idle": idle.idle,
    "returning": returning.back_after_kill,
    "flat_sync": flat.sync_of_long_logs,
    "flat_members": flat.acks_in_large_chats,
    "slow_reader": slow.slow_reader,
    "receipts": receipts.receipts,
    "presence_storm": presence.storm,
    "abuse": abuse.abuse,
    "archive": archive.archive,
    "search": search.searches,
    "search_sends": background.search_sends,
    "log_hashes": background.log_hashes,
}
