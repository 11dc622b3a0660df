"""Exports of Slack and Mattermost in their true formats, with a bit of everything."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

SLACK_PEOPLE = [
    {
        "id": "U1",
        "team_id": "T1",
        "name": "Ada.L",
        "deleted": False,
        "real_name": "Ada Lovelace",
        "profile": {
            "real_name": "Ada Lovelace",
            "display_name": "ada",
            "title": "Countess",
            "email": "a@x.org",
        },
        "is_bot": False,
    },
    {"id": "U2", "name": "bob", "deleted": False, "real_name": "Bob", "profile": {"display_name": ""}},
    {"id": "U3", "name": "gone", "deleted": True, "profile": {"real_name": "Gone Person"}},
]
SLACK_CHANNELS = [
    {
        "id": "C1",
        "name": "general",
        "created": 1500000000,
        "creator": "U1",
        "is_archived": False,
        "is_general": True,
        "members": ["U1", "U2"],
        "topic": {"value": "", "creator": "", "last_set": 0},
        "purpose": {"value": "Everything", "creator": "U1", "last_set": 0},
    }
]
SLACK_DAYS: dict[str, list[dict[str, Any]]] = {
    "general/2017-07-14.json": [
        {
            "type": "message",
            "subtype": "channel_join",
            "user": "U2",
            "text": "<@U2> has joined",
            "ts": "1500000000.000001",
        },
        {
            "type": "message",
            "user": "U1",
            "text": "hello <@U2> &amp; <https://x.org/?a=1&amp;b=2|a link> in <#C1|general> <!here>",
            "ts": "1500000001.000100",
            "thread_ts": "1500000001.000100",
            "reply_count": 2,
            "replies": [{"user": "U3", "ts": "1500000003.000100"}],
            "reactions": [{"name": "tada", "users": ["U2"], "count": 1}],
        },
        {"type": "message", "user": "U2", "text": "second", "ts": "1500000002.000200"},
        {
            "type": "message",
            "user": "U3",
            "text": "a reply",
            "ts": "1500000003.000100",
            "thread_ts": "1500000001.000100",
            "parent_user_id": "U1",
        },
    ],
    "general/2017-07-15.json": [
        {
            "type": "message",
            "subtype": "bot_message",
            "bot_id": "B1",
            "username": "Build Bot",
            "text": "build &lt;b&gt;done&lt;/b&gt;",
            "ts": "1500100000.000300",
        },
        {
            "type": "message",
            "user": "U1",
            "text": "a late reply",
            "files": [{"id": "F1", "name": "plan.pdf", "url_private": "https://files.slack.com/x"}],
            "ts": "1500100000.000200",
            "thread_ts": "1500000001.000100",
        },
    ],
    "D1/2017-07-14.json": [
        {"type": "message", "user": "U2", "text": "psst", "ts": "1500000009.000000"},
    ],
}


def slack_zip(path: Path, *more: dict[str, Any]) -> Path:
    """`more`: further messages of a last day."""
    with ZipFile(path, "w") as archive:
        archive.writestr("users.json", json.dumps(SLACK_PEOPLE))
        archive.writestr("channels.json", json.dumps(SLACK_CHANNELS))
        archive.writestr(
            "dms.json", json.dumps([{"id": "D1", "created": 1500000008, "members": ["U1", "U2"]}])
        )
        archive.writestr("integration_logs.json", "[]")
        for name, messages in SLACK_DAYS.items():
            archive.writestr(name, json.dumps(messages))
        if more:
            archive.writestr("general/2017-07-16.json", json.dumps(more))
    return path


def _member(name: str) -> dict[str, Any]:
    return {"name": name, "roles": "channel_user", "notify_props": {"desktop": "default"}, "favorite": False}


MATTERMOST_LINES: list[dict[str, Any]] = [
    {"type": "version", "version": 1, "info": {"generator": "mattermost-server", "version": "10.5.0"}},
    {"type": "team", "team": {"name": "crew", "display_name": "Crew", "type": "O"}},
    {
        "type": "channel",
        "channel": {"team": "crew", "name": "town-square", "display_name": "Town Square", "type": "O"},
    },
    {
        "type": "user",
        "user": {
            "username": "ada",
            "email": "a@x.org",
            "nickname": "",
            "first_name": "Ada",
            "last_name": "Lovelace",
            "position": "Countess",
            "roles": "system_user",
            "teams": [{"name": "crew", "roles": "team_user", "channels": [_member("town-square")]}],
        },
    },
    {
        "type": "user",
        "user": {
            "username": "bob",
            "nickname": "Bobby",
            "teams": [{"name": "crew", "channels": [_member("town-square")]}],
        },
    },
    {
        "type": "user",
        "user": {"username": "gone", "delete_at": 1500000099000, "teams": []},
    },
    {
        "type": "post",
        "post": {
            "team": "crew",
            "channel": "town-square",
            "user": "ada",
            "message": "root",
            "create_at": 1500000001000,
            "reactions": [{"user": "bob", "emoji_name": "tada", "create_at": 1500000002000}],
            "replies": [
                {"user": "gone", "message": "reply", "create_at": 1500000003000},
                {"user": "bob", "message": "late reply", "create_at": 1500000009000},
            ],
        },
    },
    {
        "type": "post",
        "post": {
            "team": "crew",
            "channel": "town-square",
            "user": "bob",
            "message": "between",
            "create_at": 1500000005000,
            "attachments": [{"path": "data/20170714/x/plan.pdf"}],
        },
    },
    {
        "type": "post",
        "post": {
            "team": "crew",
            "channel": "town-square",
            "user": "bob",
            "type": "system_join_channel",
            "message": "bob joined",
            "create_at": 1500000000000,
        },
    },
    {"type": "direct_channel", "direct_channel": {"members": ["ada", "bob"], "header": ""}},
    {
        "type": "direct_post",
        "direct_post": {
            "channel_members": ["bob", "ada"],
            "user": "bob",
            "message": "psst",
            "create_at": 1500000008000,
        },
    },
    {"type": "emoji", "emoji": {"name": "party", "image": "x.png"}},
]


def mattermost_jsonl(path: Path) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in MATTERMOST_LINES), encoding="utf-8")
    return path
