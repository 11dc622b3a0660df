"""`parley webhook` and `parley dlq`, on a store that nobody serves."""

from pathlib import Path

import apsw
import pytest

from parley.store.folder import DATABASE_NAME
from tests.integration.cli.running import parley, succeed
from tests.integration.cli.stores import one

URL = "https://example.com/parley"


def put_letters(data: Path, *errors: str) -> None:
    """Dead letters of the server's, one for each error."""
    with apsw.Connection(str(data / DATABASE_NAME)) as connection:
        for number, error in enumerate(errors, 1):
            connection.execute(
                "INSERT INTO dead_letters VALUES (?, 'chat_x', ?, 'wh_1', 'msg_1', 'user_ann', 0, ?, '', 3,"
                " 0, 0, ?, ?, 'messages.outbound', 0, ?, 'pending', 0, 0, 0, '', 1, '[]')",
                (f"dlq_{number}", number, error, number * 1_000, number * 1_000, number),
            )


def test_webhooks_are_added_listed_and_removed(data: Path) -> None:
    """The secret is printed once, and every action is recorded."""
    succeed("user", "list", data=data)
    made = succeed("webhook", "add", URL, "--event", "message.created", "--json", data=data).json
    assert made["secret"].startswith("whs_")
    (listed,) = succeed("webhook", "list", "--json", data=data).json["webhooks"]
    assert (listed["webhook_id"], listed["url"]) == (made["webhook_id"], URL)
    assert made["secret"] not in succeed("webhook", "list", data=data).stdout
    succeed("webhook", "remove", made["webhook_id"], data=data)
    assert succeed("webhook", "list", "--json", data=data).json == {"webhooks": []}
    records = succeed("user", "audit", "--json", data=data).json["records"]
    assert [record["action"] for record in records] == ["webhook.remove", "webhook.add"]


@pytest.mark.parametrize(
    "arguments",
    [("add", "https://127.0.0.1/"), ("add", URL, "--event", "message.burnt"), ("remove", "wh_none")],
)
def test_what_cannot_be_done_is_said(data: Path, arguments: tuple[str, ...]) -> None:
    """Status 1 and a sentence."""
    run = parley("webhook", *arguments, data=data)
    assert (run.status, run.stdout) == (1, "")
    assert "Traceback" not in run.stderr
    assert run.stderr.strip()


def test_dead_letters_are_found_and_replayed_on_demand(data: Path) -> None:
    """Without --apply nothing changes; with it, exactly the selection is queued, once."""
    put_letters(data, "timeout", "timeout", "refused")
    listed = succeed("dlq", "list", "--json", data=data).json
    assert listed["total"] == 3
    assert {group["error"]: group["count"] for group in listed["groups"]} == {"timeout": 2, "refused": 1}
    assert (
        len(succeed("dlq", "list", "--since", "1970-01-01T00:00:02Z", "--json", data=data).json["records"])
        == 2
    )
    dry = succeed("dlq", "replay", "--error", "timeout", "--json", data=data).json
    assert dry == {"matched": 2, "job_id": None}
    assert one(data, "SELECT count(*) FROM dead_letters WHERE is_queued") == 0
    job = succeed("dlq", "replay", "--error", "timeout", "--apply", "--json", data=data).json
    assert job["matched"] == 2
    assert one(data, "SELECT count(*) FROM dead_letters WHERE is_queued") == 2
    again = succeed("dlq", "replay", "--error", "timeout", "--apply", "--json", data=data).json
    assert again["matched"] == 0
    shown = succeed("dlq", "show", "dlq_1", "--json", data=data).json
    assert (shown["queued"], shown["job_id"], shown["history"][-1]["action"]) == (
        True,
        job["job_id"],
        "replay",
    )
    assert shown["history"][-1]["actor"].startswith("cli:")


def test_dead_letters_are_discarded_with_a_reason(data: Path) -> None:
    """By id; without a reason it is wrong usage, without --apply a dry run."""
    put_letters(data, "timeout", "refused")
    assert parley("dlq", "discard", "--apply", data=data).status == 2
    discard = ("dlq", "discard", "--reason", "no use", "--id", "dlq_2")
    assert "would be" in succeed(*discard, data=data).stdout
    assert succeed(*discard, "--apply", "--json", data=data).json["matched"] == 1
    assert one(data, "SELECT status FROM dead_letters WHERE dlq_id = 'dlq_2'") == "permanently_failed"
    assert one(data, "SELECT status FROM dead_letters WHERE dlq_id = 'dlq_1'") == "pending"
    (record, *_) = succeed("user", "audit", "--json", data=data).json["records"]
    assert (record["action"], record["outcome"]) == ("dlq.discard", "done")
    assert "no use" in record["detail"]
