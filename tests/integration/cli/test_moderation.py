"""Commands about links, reports, tokens of programs and who may post, on a store that nobody serves."""

from pathlib import Path

from tests.integration.cli.running import parley, succeed
from tests.integration.cli.stores import one


def test_an_invitation_is_made_listed_and_revoked(data: Path) -> None:
    """stdout is the link alone; the store has a digest of its token."""
    link = succeed("user", "invite", "--uses", "3", "--note", "team", data=data).stdout.strip()
    address, _, token = link.partition("#")
    assert address.endswith("/link")
    kept = str(one(data, "SELECT record FROM records WHERE kind = 'links'"))
    assert token not in kept
    assert token[-64:] not in kept
    (listed,) = succeed("user", "invite", "list", "--json", data=data).json["invites"]
    assert (listed["state"], listed["uses"], listed["used"], listed["note"]) == ("open", 3, 0, "team")
    assert succeed("user", "invite", "revoke", listed["link_id"], data=data).stdout.endswith("revoked\n")
    (listed,) = succeed("user", "invite", "list", "--json", data=data).json["invites"]
    assert listed["state"] == "revoked"
    assert "there is no such link" in parley("user", "invite", "revoke", "lnk_x", data=data).stderr


def test_a_closed_server_invites_nobody(data: Path) -> None:
    """A link that could not be used is not made."""
    closed = {"PARLEY_ACCOUNTS_REGISTRATION": "closed"}
    assert parley("user", "invite", data=data, environment=closed).status == 1


def test_a_link_for_a_new_password(data: Path) -> None:
    """It names the server that people reach, and is in the audit log."""
    made = succeed("user", "reset", "ann", "--url", "https://chat.example/", "--json", data=data).json
    assert made["url"] == f"https://chat.example/link#{made['token']}"
    assert made["user_id"] == "user_ann"
    records = succeed("user", "audit", "--json", data=data).json["records"]
    assert (records[0]["action"], records[0]["target_id"]) == ("user.password_reset", "user_ann")


def test_tokens_of_programs_are_listed_and_revoked(data: Path) -> None:
    """`parley token NAME` still makes one; a revoked one is gone."""
    made = succeed("token", "ann", "--api", "--scopes", "send", "--json", data=data).json
    assert succeed("token", "ben", data=data).stdout.startswith("prl_")
    (listed,) = succeed("token", "list", "--json", data=data).json["tokens"]
    assert (listed["token_id"], listed["name"], listed["scopes"]) == (made["token_id"], "ann", ["send"])
    assert made["token_id"] in succeed("token", "list", data=data).stdout
    succeed("token", "revoke", made["token_id"], data=data)
    assert succeed("token", "list", "--json", data=data).json["tokens"] == []
    assert parley("token", "revoke", made["token_id"], data=data).status == 1


def test_a_report_is_made_listed_and_resolved(data: Path) -> None:
    """With the message as it is now; the same report twice is one."""
    chat_id = succeed("chat", "create", "--as", "ann", "--title", "Loud", "ben", data=data).stdout.strip()
    wrong = parley("report", "add", chat_id, "msg_nothing", "--as", "ben", "--reason", "rude", data=data)
    assert "there is no such message" in wrong.stderr
    entry = str(one(data, "SELECT wire FROM entries WHERE kind = 1 ORDER BY position LIMIT 1"))
    message_id, group = _field(entry, "message_id"), _field(entry, "chat_id")
    sender = _field(entry, "sender_id")
    other = "user_ann" if sender != "user_ann" else "user_ben"
    asked = ("report", "add", group, message_id, "--as", other, "--reason", "rude", "--json")
    made = succeed(*asked, data=data).json
    assert made["created"]
    assert succeed(*asked, data=data).json == {**made, "created": False}
    (listed,) = succeed("report", "list", "--status", "open", "--json", data=data).json["reports"]
    assert (listed["report_id"], listed["reason"]) == (made["report_id"], "rude")
    assert listed["message"]["message_id"] == message_id
    succeed("report", "resolve", made["report_id"], "dismissed", "--note", "a joke", data=data)
    assert succeed("report", "list", "--status", "open", "--json", data=data).json["reports"] == []
    assert "dismissed" not in succeed("report", "list", data=data).stdout.splitlines()[0]


def _field(entry: str, name: str) -> str:
    return entry.split(f'"{name}":"')[1].split('"')[0]


def test_who_may_post(data: Path) -> None:
    """Both settings by command, each an entry of the log."""
    chat_id = succeed("chat", "create", "--as", "ann", "--title", "News", "ben", data=data).stdout.strip()
    succeed("chat", "announce", "News", "on", data=data)
    succeed("chat", "slow", "News", "30", data=data)
    settings = f"SELECT announcement_only || ' ' || slow_mode_seconds FROM chats WHERE chat_id = '{chat_id}'"
    assert one(data, settings) == "1 30"
    succeed("chat", "announce", "News", "off", data=data)
    succeed("chat", "slow", "News", "0", data=data)
    assert one(data, settings) == "0 0"
    assert parley("chat", "announce", "News", "maybe", data=data).status == 2
    assert parley("chat", "slow", "News", "99999", data=data).status == 1


def test_a_person_is_erased(data: Path) -> None:
    """The command notes it; a server removes what they wrote, and the report says so far nothing."""
    succeed("user", "delete", "cas", "--yes", "--erase", data=data)
    assert one(data, "SELECT count(*) FROM records WHERE kind = 'erasures'") == 1
    report = succeed("user", "erasure", "user_cas", "--json", data=data).json
    assert report["user_id"] == "user_cas"
    assert "not finished" in succeed("user", "erasure", "user_cas", data=data).stdout
    assert parley("user", "erasure", "user_ben", data=data).status == 1


def test_operators_are_made_and_their_records_found(data: Path) -> None:
    """One is always left; the audit log by what was done, to whom, and when."""
    assert "operator" in succeed("user", "operator", "ann", data=data).stdout
    assert "last operator" in parley("user", "operator", "ann", "--off", data=data).stderr
    succeed("user", "operator", "ben", data=data)
    assert "no operator" in succeed("user", "operator", "ann", "--off", data=data).stdout
    given = ("user", "audit", "--json", "--target", "user_ann")
    page = succeed(*given, data=data).json
    assert [one["action"] for one in page["records"]] == [
        "operator.remove",
        "operator.remove",
        "operator.add",
    ]
    assert page["next"] is None
    only = succeed(*given, "--action", "operator.add", "--since", "2020-01-01T00:00:00Z", data=data).json
    assert [one["outcome"] for one in only["records"]] == ["done"]
    assert succeed(*given, "--until", "2020-01-01T00:00:00Z", data=data).json["records"] == []
    assert parley(*given, "--since", "yesterday", data=data).status == 1
