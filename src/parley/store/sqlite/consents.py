"""What people say to being put into a chat, as of the open transaction. See `store/consent.py`."""

from __future__ import annotations

from collections.abc import Sequence

from parley.core.permissions import JoinFacts
from parley.model import AccountState, PersonConsent
from parley.store.consent import Newcomer, join_facts, uninvited
from parley.store.sqlite.chat_state import Execute
from parley.store.sqlite.reads import Row, json_ids
from parley.store.sqlite.record_rows import load
from parley.store.sqlite.writer import Transaction
from parley.store.tables import ALONE, CONSENTS, CONTACTS, INVITED_PEOPLE, PEOPLE

RECORD = "SELECT record FROM records WHERE kind = ? AND partition = ? AND place = ?"
NEWCOMERS = f"""
SELECT people.record,
    (SELECT record FROM records WHERE kind = '{CONSENTS.name}' AND partition = people.partition
        AND place = '{ALONE}'),
    EXISTS (SELECT 1 FROM records WHERE kind = '{CONTACTS.name}' AND partition = people.partition
        AND place = ?2),
    (SELECT count(*) FROM chat_memberships AS m WHERE m.user_id = people.partition),
    (SELECT count(*) FROM chat_memberships AS m WHERE m.user_id = people.partition AND m.is_unasked)
FROM json_each(?1) AS asked CROSS JOIN records AS people
    ON people.kind = '{PEOPLE.name}' AND people.partition = asked.value AND people.place = '{ALONE}'
"""


def newcomers(execute: Execute, actor_id: str, user_ids: Sequence[str]) -> dict[str, Newcomer[None]]:
    """Those of these people who exist and are not deleted."""
    rows: list[Row] = execute(NEWCOMERS, (json_ids(user_ids), actor_id)).fetchall()
    found = {}
    for person, record, is_contact, total, unasked in rows:
        user = PEOPLE.decode(person).user
        if user.state is AccountState.DELETED:
            continue
        said = None if record is None else CONSENTS.decode(record)
        facts: JoinFacts = join_facts(user, said, actor_id, bool(is_contact), (total, unasked))
        found[user.user_id] = Newcomer(user.user_id, facts, said, None)
    return found


def said_by(execute: Execute, user_id: str) -> PersonConsent | None:
    row: Row | None = execute(RECORD, (CONSENTS.name, user_id, ALONE)).fetchone()
    return None if row is None else CONSENTS.decode(row[0])


def end_invitation(transaction: Transaction, user_id: str, chat_id: str) -> None:
    """The person is in the chat."""
    without = uninvited(said_by(transaction.execute, user_id), chat_id)
    if without is not None:
        load(transaction.connection, CONSENTS, [without])
        place = (INVITED_PEOPLE.name, chat_id, user_id)
        transaction.execute("DELETE FROM records WHERE kind = ? AND partition = ? AND place = ?", place)
