"""Every limit of the contract, with its unit last. `welcome.limits` carries those a client needs."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

MESSAGE_BYTES_MAX = 64 * KIB
FRAME_BYTES_MAX = 128 * KIB
BODY_BYTES_MAX = 1 * MIB
REQUEST_LINE_BYTES_MAX = 128 * KIB
CHAT_MEMBERS_MAX = 10_000
USER_CHATS_MAX = 5_000
UNASKED_CHATS_MAX = 2_500
"""Chats that people put a person into who are not contacts of theirs; beyond it these can only invite."""
INVITATIONS_MAX = 200
"""Invitations that wait for one person; the oldest ends when there are more."""
INVITATIONS_PER_INVITER_MAX = 10
"""Invitations of one person that wait for another."""
SLOW_MODE_SECONDS_MAX = 21_600
INVITATION_DAYS = 30
IN_FLIGHT_MAX = 1_024
OUTBOX_BYTES_MAX = 4 * MIB
USER_OUTBOX_BYTES_MAX = 16 * MIB
"""Of all connections of a user on one node."""
PRESENCE_BATCH_MAX = 500
CONTACTS_MAX = 5_000
BLOCKS_MAX = 1_000
RECEIPT_MEMBERS_MAX = 100
"""In a larger chat, clients get receipts only on request."""
TYPING_MEMBERS_MAX = 100
"""In a larger chat typing is not shown."""
TYPING_EVERY_SECONDS = 3
TYPING_SHOWN_SECONDS = 5
ATTENTION_SECONDS = 120
"""After so long a client that nobody looks at keeps no notification back."""

PAGE_ENTRIES_DEFAULT = 100
PAGE_ENTRIES_MAX = 1_000
PAGE_BYTES_MAX = 1 * MIB
HASHES_STORED_EVERY = 25
"""The server stores the hash of a log at each multiple of this: a page that ends at one costs it least."""
RECEIPT_PAGES_MAX = 10
"""To find the message of one receipt, the server reads at most this many pages."""
OVERVIEW_CHATS_DEFAULT = 100
OVERVIEW_CHATS_MAX = 1_000
UNREAD_MAX = 999
UNREAD_LOOKED_AT_MAX = 10_000
"""The server counts unread messages in at most this many positions at the end of a chat."""
MENTIONS_LOOKED_AT_MAX = 200
"""The server counts mentions among so many of the newest unread positions of a chat."""

USERNAME_CHARS_MAX = 64
PASSWORD_CHARS_MAX = 1_024
DEVICE_ID_CHARS_MAX = 64
DEVICE_NAME_CHARS_MAX = 200
EXTERNAL_ID_CHARS_MAX = 255
IDEMPOTENCY_KEY_CHARS_MAX = 255
API_TOKEN_NAME_CHARS_MAX = 64
API_TOKENS_MAX = 1_000
TITLE_CHARS_MAX = 200
DISPLAY_NAME_CHARS_MAX = 200
ABOUT_CHARS_MAX = 1_000
CONTENT_TYPE_CHARS_MAX = 128
TIME_CHARS_MAX = 64
MENTIONS_MAX = 100
"""People whom one message may mention."""
ATTACHMENTS_MAX = 10
"""Files that one message may refer to."""
ATTACHMENT_NAME_CHARS_MAX = 255
ATTACHMENT_PART_BYTES = 4 * MIB
"""A file is uploaded in parts of this size; a range of an upload ends with a part, or with the file."""
UPLOADS_AT_ONCE_MAX = 16
"""On one node: each may have a part in memory."""
UPLOADS_PER_PERSON_MAX = 4
UPLOAD_BYTES_PER_SECOND_MIN = 32 * KIB
"""A slower upload ends: it would hold its place and its memory for too long. A part takes two minutes."""
UPLOAD_GRACE_SECONDS = 10
"""So much longer may a part take."""
PREVIEW_CHARS_MAX = 2_048
"""Of the preview of an image, as it stands in an entry."""
LOOKUP_MESSAGES_MAX = 100
"""Messages in one look-up."""
SHOWN_ENTRIES_MAX = 200
"""Entries of a page with what a reader sees beside them."""
PROFILES_MAX = 100
"""People whose profiles one request asks for."""
REACTION_CHARS_MAX = 16
REACTIONS_MAX = 20
"""Different reactions of one message."""
WINDOW_SECONDS_MAX = 2**31 - 1
USER_ID_CHARS_MAX = 64
LINK_SECONDS_MAX = 90 * 86_400
LINK_USES_MAX = 1_000
LINK_NOTE_CHARS_MAX = 200
REPORT_REASON_CHARS_MAX = 1_000
REPORT_OUTCOME_CHARS_MAX = 64
REPORT_NOTE_CHARS_MAX = 2_000
SEARCH_CHARS_MAX = 256
SEARCH_WORDS_MAX = 16
SEARCH_HITS_DEFAULT = 20
SEARCH_HITS_MAX = 100

HELLO_SECONDS_MAX = 10
HEARTBEAT_SECONDS = 30
IDLE_SECONDS_MAX = 75
DRAIN_SECONDS_MAX = 10
ANSWER_SECONDS_MAX = 5
"""The server answers every request within this time of starting it, whatever the store does."""

SEQUENCE_MAX = 2**53 - 1
SESSION_DAYS = 30
USER_SESSIONS_MAX = 100
"""A login beyond them ends the session that was used least recently."""
DEVICES_MAX = 100
"""Whose positions are kept for one person. One more ends the device that was longest unused."""
IDEMPOTENCY_DAYS = 7

assert TYPING_SHOWN_SECONDS > TYPING_EVERY_SECONDS, "a member who keeps typing is shown without a break"
assert FRAME_BYTES_MAX > MESSAGE_BYTES_MAX
assert 2 * UNASKED_CHATS_MAX <= USER_CHATS_MAX, "half of a person's chats are their own to choose"
assert UPLOADS_PER_PERSON_MAX < UPLOADS_AT_ONCE_MAX, "nobody has every place"
assert OUTBOX_BYTES_MAX > 2 * PAGE_BYTES_MAX
assert USER_OUTBOX_BYTES_MAX > OUTBOX_BYTES_MAX
assert UNREAD_LOOKED_AT_MAX > UNREAD_MAX
assert IDLE_SECONDS_MAX > 2 * HEARTBEAT_SECONDS
assert PAGE_BYTES_MAX > MESSAGE_BYTES_MAX
assert PAGE_ENTRIES_DEFAULT % HASHES_STORED_EVERY == PAGE_ENTRIES_MAX % HASHES_STORED_EVERY == 0

WELCOME_LIMITS: dict[str, int] = {
    "MESSAGE_BYTES_MAX": MESSAGE_BYTES_MAX,
    "FRAME_BYTES_MAX": FRAME_BYTES_MAX,
    "BODY_BYTES_MAX": BODY_BYTES_MAX,
    "CHAT_MEMBERS_MAX": CHAT_MEMBERS_MAX,
    "USER_CHATS_MAX": USER_CHATS_MAX,
    "IN_FLIGHT_MAX": IN_FLIGHT_MAX,
    "OUTBOX_BYTES_MAX": OUTBOX_BYTES_MAX,
    "PRESENCE_BATCH_MAX": PRESENCE_BATCH_MAX,
    "PAGE_ENTRIES_MAX": PAGE_ENTRIES_MAX,
    "CONTACTS_MAX": CONTACTS_MAX,
    "BLOCKS_MAX": BLOCKS_MAX,
    "RECEIPT_MEMBERS_MAX": RECEIPT_MEMBERS_MAX,
    "TYPING_MEMBERS_MAX": TYPING_MEMBERS_MAX,
    "MENTIONS_MAX": MENTIONS_MAX,
    "REACTIONS_MAX": REACTIONS_MAX,
    "ATTACHMENTS_MAX": ATTACHMENTS_MAX,
}
