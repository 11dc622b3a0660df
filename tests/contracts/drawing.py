"""What the model test of a store draws by chance, and what it keeps of what was listed."""

from typing import NamedTuple

from hypothesis import strategies as st
from msgspec import structs

from parley.model import Action, ChatSummary, Kind, OverviewPage, Role

PEOPLE = ("ann", "ben", "cem", "eve")
CLIENT_IDS = [f"00000000-0000-4000-8000-0000000000{n:02x}" for n in range(12)]
CONTENTS = ("a", "b", "nul \0", "😀")


class Say(NamedTuple):
    """A message to be sent; ids are new (None) or of a few, so that retries and clashes are many."""

    chat: int
    sender: int
    client_id: int | None
    content: str
    after: int | None


class Alter(NamedTuple):
    """A change of a chat to be tried."""

    chat: int
    actor: int
    action: Action
    about: int
    role: Role


class Amend(NamedTuple):
    """Something to be done to a message: the last one of its chat, or one before it."""

    kind: Kind | None
    """None: a reply."""
    chat: int
    sender: int
    back: int
    client_id: int | None
    content: str
    on: bool


class Listed(NamedTuple):
    """A list of chats as a device knew it, and its token. `brief`: without last entries."""

    token: str | None = None
    rows: tuple[ChatSummary, ...] = ()
    brief: bool = False

    def then(self, page: OverviewPage, brief: bool) -> "Listed":
        """With a page on top of it."""
        brief = brief or self.brief
        new = {at.chat_id: at for at in page.positions}
        rows = [at for at in self.rows if at.chat_id not in new]
        rows += [at for at in new.values() if not at.left]
        return Listed(page.token, tuple(sorted([_comparable(at, brief) for at in rows], key=_chat_of)), brief)

    def told(self, engine_name: str) -> list[ChatSummary]:
        """What must be as it is now. On DynamoDB no device is told that it has caught up with another one."""
        if engine_name.startswith("dynamodb"):
            return [structs.replace(at, last_acked_sequence=0) for at in self.rows]
        return list(self.rows)


def _comparable(at: ChatSummary, brief: bool) -> ChatSummary:
    return structs.replace(at, last_entry=None) if brief else at


def _chat_of(at: ChatSummary) -> str:
    return at.chat_id


chat_numbers = st.integers(0, 8)
person_numbers = st.integers(0, 11)
id_numbers = st.none() | st.integers(0, len(CLIENT_IDS) - 1)
afters = st.sampled_from([*[None] * len(CLIENT_IDS), *range(len(CLIENT_IDS))])
says = st.builds(Say, chat_numbers, person_numbers, id_numbers, st.sampled_from(CONTENTS), afters)
alters = st.builds(
    Alter, chat_numbers, person_numbers, st.sampled_from(Action), person_numbers, st.sampled_from(Role)
)
amends = st.builds(
    Amend,
    st.sampled_from([None, Kind.EDIT, Kind.EDIT, Kind.DELETE, Kind.REACTION, Kind.REACTION]),
    st.integers(0, 7),
    person_numbers,
    st.integers(0, 3),
    id_numbers,
    st.sampled_from(CONTENTS),
    st.booleans(),
)
places = st.integers(0, len(PEOPLE) - 1)
shares = st.floats(0, 1)
