"""`parley user`, `token` and `chat`, on a store that nobody serves."""

import hashlib
from pathlib import Path

import pytest

from tests.integration.cli.running import parley, succeed
from tests.integration.cli.stores import change, one
from tests.integration.small_world import GROUP_ENTRIES


def test_a_person_is_added_with_a_made_password(data: Path) -> None:
    """Without a terminal a password is made, and printed this once."""
    made = succeed("user", "add", "dan", "--operator", "--json", data=data).json
    assert made["username"] == "dan"
    assert len(made["password"]) >= 16
    assert one(data, "SELECT is_operator FROM users WHERE username = 'dan'") == 1
    assert made["password"] not in str(one(data, "SELECT password_hash FROM users WHERE username = 'dan'"))


def test_a_given_password_is_not_printed(data: Path) -> None:
    """A password from stdin is used and appears nowhere."""
    run = succeed("user", "add", "dan", "--password-stdin", data=data, given="open sesame\n")
    assert "sesame" not in run.stdout + run.stderr
    hashed = one(data, "SELECT password_hash FROM users WHERE username = 'dan'")
    assert str(hashed).startswith("$argon2id$")


def test_a_token_is_shown_once_and_kept_as_a_hash(data: Path) -> None:
    """stdout is the token alone; the store has its SHA-256 and the device."""
    run = succeed("token", "ann", "--device", "laptop", data=data)
    token = run.stdout.strip()
    assert token.startswith("prl_")
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert one(data, f"SELECT device_id FROM sessions WHERE token_hash = '{digest}'") == "laptop"


def test_people_are_listed(data: Path) -> None:
    """Everybody is in the table and in the JSON, with how many chats they are in."""
    assert [line.split()[0] for line in succeed("user", "list", data=data).lines] == [
        "NAME",
        "ann",
        "ben",
        "cas",
    ]
    listed = succeed("user", "list", "--json", data=data).json["users"]
    assert {user["username"]: user["chats"] for user in listed} == {"ann": 2, "ben": 2, "cas": 1}


def test_a_group_is_created_and_shown(data: Path) -> None:
    """A new group has its owner and members by name, and appends nothing."""
    chat_id = succeed(
        "chat", "create", "--as", "cas", "--title", "Cake [bold]", "ann", "user_ben", data=data
    ).stdout.strip()
    shown = succeed("chat", "show", "cake [BOLD]", "--json", data=data).json
    assert shown["chat"]["chat_id"] == chat_id
    assert shown["chat"]["sequence_counter"] == 0
    assert {m["username"]: m["role"] for m in shown["members"]} == {
        "ann": "member",
        "ben": "member",
        "cas": "owner",
    }
    assert "Cake [bold]" in succeed("chat", "list", "--of", "ben", data=data).stdout


def test_a_direct_chat_exists_once(data: Path) -> None:
    """The direct chat of two people is found again, whoever is named first."""
    again = succeed("chat", "direct", "ben", "ann", "--json", data=data).json
    assert (again["chat_id"], again["created"]) == ("chat_direct", False)
    assert succeed("chat", "show", "ben,ann", "--json", data=data).json["chat"]["chat_id"] == "chat_direct"


def test_changes_of_a_chat_are_entries(data: Path) -> None:
    """Removing, adding, promoting and renaming each take the next number of the log."""
    changes = [
        ("chat", "remove", "Tea", "cas"),
        ("chat", "add", "Tea", "cas", "--role", "admin"),
        ("chat", "role", "Tea", "ben", "owner", "--as", "ann"),
        ("chat", "rename", "chat_group", "Coffee"),
    ]
    made = [succeed(*change, "--json", data=data).json["sequence"] for change in changes]
    assert made == list(range(GROUP_ENTRIES + 1, GROUP_ENTRIES + 5))
    assert succeed("chat", "show", "Coffee", "--json", data=data).json["chat"]["members"] == 3
    assert parley("check", data=data).status == 0


def test_the_fanout_of_a_chat_is_shown_and_chosen(data: Path) -> None:
    """By its size at first, then as chosen, and by its size again."""
    assert succeed("chat", "fanout", "Tea", data=data).stdout == "write (by its size, 3 members)\n"
    assert succeed("chat", "fanout", "Tea", "read", data=data).stdout == "read (chosen)\n"
    shown = succeed("chat", "fanout", "Tea", "--json", data=data).json
    assert (shown["fanout"], shown["chosen"], shown["member_count"]) == ("read", "read", 3)
    assert succeed("chat", "fanout", "Tea", "auto", "--json", data=data).json["chosen"] is None
    assert parley("chat", "fanout", "Tea", "loud", data=data).status == 2


def test_invitations_are_listed_accepted_and_declined(data: Path) -> None:
    """Whom nobody may add is invited; what they accept is an entry, what they decline is nothing."""
    change(
        data,
        "UPDATE records SET record = json_set(record, '$.user.who_may_add', 'nobody')"
        " WHERE kind = 'people' AND record ->> '$.user.username' = 'cas'",
    )
    succeed("chat", "remove", "Tea", "cas", data=data)
    assert succeed("chat", "add", "Tea", "cas", "--json", data=data).json["sequence"] is None
    other = succeed("chat", "create", "--as", "ben", "--title", "Cake", "cas", "--json", data=data).json
    assert other["invited"] == ["user_cas"]
    assert "Tea" in succeed("chat", "invitations", "cas", data=data).stdout
    found = succeed("chat", "invitations", "cas", "--json", data=data).json["invitations"]
    assert {one["chat_id"] for one in found} == {"chat_group", other["chat_id"]}
    accepted = succeed("chat", "accept", "Tea", "--as", "cas", "--json", data=data).json
    assert accepted["sequence"] == GROUP_ENTRIES + 2
    assert "no longer invited" in succeed("chat", "decline", "Cake", "--as", "cas", data=data).stdout
    assert succeed("chat", "invitations", "cas", "--json", data=data).json["invitations"] == []
    assert parley("check", data=data).status == 0


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("user", "add", "Ann!"), 1, "a username is"),
        (("user", "add", "ann"), 1, "taken"),
        (("token", "zoe"), 1, "parley user add zoe"),
        (("token", "ann", "--device", ""), 1, "device_id"),
        (("chat", "show", "Nothing"), 1, "parley chat list"),
        (("chat", "create", "--title", "x"), 2, "--owner"),
        (("chat", "create", "--as", "ann", "--title", ""), 1, "title"),
        (("chat", "add", "Tea", "ben"), 1, "already"),
        (("chat", "remove", "Tea", "ann"), 1, "last owner"),
        (("chat", "add", "ann,ben", "cas"), 1, "direct chat"),
        (("chat", "accept", "Tea", "--as", "ben"), 1, "no such invitation"),
        (("chat", "add", "Tea", "ben", "--role", "king"), 2, "king"),
        (("chat", "frobnicate"), 2, "frobnicate"),
    ],
)
def test_a_mistake_is_a_sentence(arguments: tuple[str, ...], status: int, says: str, data: Path) -> None:
    """A person's mistake is told on stderr without a traceback, with a status that fits."""
    run = parley(*arguments, data=data)
    assert run.status == status
    assert says in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""


def test_two_chats_of_one_title_are_not_confused(data: Path) -> None:
    """A title that two chats have is refused with both ids."""
    other = succeed("chat", "create", "--as", "ben", "--title", "Tea", data=data).stdout.strip()
    run = parley("chat", "show", "tea", data=data)
    assert run.status == 1
    assert "chat_group" in run.stderr
    assert other in run.stderr
