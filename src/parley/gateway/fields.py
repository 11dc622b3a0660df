"""What each field of an HTTP body means, with an example.

A name means the same in every body; where it does not, `Body.name` stands beside it. Lists and objects have
no example of their own: theirs is made of their fields. A page that sends an example as it is (`/docs`) must
get a good answer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import UNSET


class Field(NamedTuple):
    description: str
    example: Any = UNSET


USER_ID = "user_01JHV3Z8M4QK7N5X2R9T6WBCDF"
OTHER_ID = "user_01JHV3Z8M4QK7N5X2R9T6WBCDJ"
CHAT_ID = "chat_01JHV3Z8M4QK7N5X2R9T6WBCDE"
MESSAGE_ID = "msg_01JHV3Z8M4QK7N5X2R9T6WBCDG"
SESSION_ID = "ses_01JHV3Z8M4QK7N5X2R9T6WBCDH"
AUDIT_ID = "aud_01JHV3Z8M4QK7N5X2R9T6WBCDM"
DLQ_ID = "dlq_01JHV3Z8M4QK7N5X2R9T6WBCDN"
JOB_ID = "job_01JHV3Z8M4QK7N5X2R9T6WBCDP"
WEBHOOK_ID = "wh_01JHV3Z8M4QK7N5X2R9T6WBCDQ"
CLIENT_MESSAGE_ID = "550e8400-e29b-41d4-a716-446655440000"
TIME = "2026-01-30T14:30:00.000Z"

FIELDS = {
    # Refusals and health
    "code": Field("Stable, for programs.", "not_a_member"),
    "reason": Field("For people; it may change.", "you are not a member of this chat"),
    "temporary": Field("Whether the same request may work later.", False),
    "retry_after_ms": Field("How long to wait before a retry, in milliseconds.", 1000),
    "Health.status": Field("The state in words.", "ready"),
    # Accounts, sessions and devices
    "username": Field("1 to 64 of `a-z 0-9 . _ -`.", "ann"),
    "password": Field("At most 1,024 characters; the server may ask for more than 1.", "a long password"),
    "old_password": Field("The password until now.", "a long password"),
    "new_password": Field("At most 1,024 characters.", "a longer password"),
    "device_id": Field("A name that the client gives the device and keeps; 1 to 64 characters.", "phone"),
    "device_name": Field("What people call the device; at most 200 characters.", "Ann's phone"),
    "token": Field("For `Authorization: Bearer …` and the frame `hello`.", "prl_AAECAwQFBgcICQoLDA0ODxAREhM"),
    "session_id": Field("The session.", SESSION_ID),
    "expires_at": Field("When the session ends if it is not used until then.", TIME),
    "last_used_at": Field("When it was last used.", TIME),
    "current": Field("Whether this request came from it.", True),
    "sessions": Field("Your sessions."),
    "Device.sessions": Field("How many sessions the device has.", 1),
    "devices": Field("Your devices, last used first."),
    # Operators
    "users": Field("The people of this page."),
    "state": Field("What the account may do.", "active"),
    "is_operator": Field("Whether the person may use these routes.", False),
    "UserSessionList.sessions": Field("The person's sessions."),
    "UserSession.created_at": Field("When the person logged in.", TIME),
    "records": Field("Newest first."),
    "next": Field("The `before` of the next page; null on the last one.", None),
    "audit_id": Field("The record.", AUDIT_ID),
    "AuditRecord.at": Field("When the action began.", TIME),
    "actor": Field("The operator's user id, or `cli:` and a user of the operating system.", USER_ID),
    "action": Field("What was done.", "user.disable"),
    "target_id": Field("To whom.", OTHER_ID),
    "request_id": Field("The request; empty for a command.", "req_01JHV3Z8M4QK7N5X2R9T6WBCDK"),
    "detail": Field("What else there is to know, such as a session.", ""),
    "outcome": Field("`begun`, `done`, or the code of the refusal.", "done"),
    # Deliveries
    "dlq_id": Field("The dead letter.", DLQ_ID),
    "DeadLetterInfo.status": Field("What became of it.", "pending"),
    "DeadLetterStory.status": Field("What became of it.", "pending"),
    "DeadLetterFilter.status": Field("What became of it.", "pending"),
    "original_message": Field("The message."),
    "msg_id": Field("The message's id.", MESSAGE_ID),
    "sender": Field("Who sent it.", USER_ID),
    "recipient": Field("Whom it was for: a webhook.", WEBHOOK_ID),
    "OriginalMessage.content": Field("The content, from the log.", "hello"),
    "timestamp": Field("When it was stored.", TIME),
    "error": Field("A stable word for why it failed.", "unreachable"),
    "error_detail": Field("The same for people.", "connection refused"),
    "retry_count": Field("How many retries failed, since the last replay.", 3),
    "first_attempt": Field("When it was first tried.", TIME),
    "last_attempt": Field("When it was last tried.", TIME),
    "dlq_timestamp": Field("When it became a dead letter.", TIME),
    "source_topic": Field("The queue that it comes from.", "messages.outbound"),
    "source_partition": Field("Always 0: a chat is its own queue.", 0),
    "source_offset": Field("The position in the chat's log.", 47),
    "queued": Field("Whether it waits for its replay.", False),
    "job_id": Field("The last job that chose it; empty for none.", JOB_ID),
    "DeadLetterJob.job_id": Field("The job; null in a dry run.", JOB_ID),
    "DeadLetterProgress.job_id": Field("The job.", JOB_ID),
    "history": Field("Oldest first."),
    "DeadLetterEvent.at": Field("When.", TIME),
    "DeadLetterEvent.action": Field(
        "`failed`, `dead_lettered`, `replay`, `replayed` or `discard`.", "dead_lettered"
    ),
    "DeadLetterEvent.error": Field("The error of a failure; else empty.", "unreachable"),
    "DeadLetterEvent.detail": Field("The same for people, or the reason of an operator.", "after 3 retries"),
    "DeadLetterEvent.actor": Field("The operator; empty for the server itself.", ""),
    "total": Field("How many match.", 1),
    "groups": Field("How many match, by error, the most first."),
    "count": Field("How many.", 1),
    "ids": Field("Exactly these.", [DLQ_ID]),
    "filter": Field("All that match; instead of `ids`.", None),
    "dry_run": Field("Only say how many match.", False),
    "topic": Field("The queue that it comes from.", "messages.outbound"),
    "after": Field("Became a dead letter at this time or later.", TIME),
    "before": Field("Became a dead letter before this time.", TIME),
    "DiscardOrder.reason": Field("Why, for the record; 1 to 200 characters.", "the integration is gone"),
    "matched": Field("How many match, and can still be replayed or discarded.", 1),
    "waiting": Field("How many wait for their replay.", 0),
    "replayed": Field("How many have been delivered.", 1),
    "failed": Field("How many failed again or were discarded.", 0),
    "url": Field("https; plain http only in `webhooks.allowed_networks`.", "https://example.com/parley"),
    "events": Field("Which events to send.", ["message.created"]),
    "NewWebhook.chat_id": Field("Only of this chat; of every chat without it.", None),
    "WebhookInfo.chat_id": Field("Only of this chat; null: of every chat.", None),
    "webhook_id": Field("The webhook.", WEBHOOK_ID),
    "secret": Field("The key of `Parley-Signature`. Shown only now.", "whs_AAECAwQFBgcICQoLDA0ODxAREhM"),
    "webhooks": Field("The oldest first."),
    # People
    "user_id": Field("The person.", USER_ID),
    "SeenBy.user_id": Field("The member; null in a chat that does not say who.", OTHER_ID),
    "NewMember.user_id": Field("The person to add; yourself to join.", OTHER_ID),
    "NewRelation.user_id": Field("The person to add.", OTHER_ID),
    "display_name": Field("What people call the person; 1 to 200 characters.", "Ann"),
    "about": Field("A few words of the person; at most 1,000 characters.", "Gone sailing"),
    "last_seen_privacy": Field("Who may see when you were last online.", "everyone"),
    "who_may_add": Field("Who may add you to chats; others can invite you.", "everyone"),
    "send_read_receipts": Field("Whether others see what you have read; without it you see none.", True),
    "status": Field("Whether the person is online, as far as you may see it.", "online"),
    "last_seen": Field(
        'When the person was last online; null if never, "unavailable" if you may not see it.', TIME
    ),
    "since": Field("When you added the person.", TIME),
    "contacts": Field("Your contacts."),
    "blocks": Field("The people you have blocked."),
    "next_after": Field("The `after` of the next page; null on the last one.", OTHER_ID),
    "presences": Field("One for each person, in the order asked."),
    # Chats and members
    "chat_id": Field("The chat.", CHAT_ID),
    "type": Field("A direct chat has two people and no title.", "group"),
    "title": Field("1 to 200 characters; null in a direct chat.", "Lunch"),
    "OverviewChat.type": Field("A direct chat has two people and no title.", "direct"),
    "OverviewChat.title": Field("1 to 200 characters; null in a direct chat.", None),
    "created_by": Field("Who created the chat.", USER_ID),
    "created_at": Field("When, by the server's clock.", TIME),
    "updated_at": Field("When the chat last changed.", TIME),
    "epoch": Field("Rises when the log is another one, as after a restored backup.", 1),
    "head": Field("The position of the last entry; 0 in an empty log.", 47),
    "role": Field("An owner may do anything, an admin may add, remove members and rename.", "member"),
    "ChatInfo.role": Field("Your role.", "owner"),
    "member_count": Field("How many members the chat has.", 2),
    "open_to_join": Field("Whether people may join the group by themselves.", False),
    "read_receipts": Field(
        "What the chat tells of who has read: each member, whether anyone has, or nothing.", "full"
    ),
    "muted": Field("Whether you have muted the chat, now.", False),
    "muted_until": Field("Until when you have muted the chat; null if you have not.", None),
    "ChatChange.muted_until": Field("Mute the chat until this time; null to unmute it.", TIME),
    "member_ids": Field("The other members.", [OTHER_ID]),
    "user_ids": Field("Several people to add, instead of `user_id`.", []),
    "added": Field("Who was added.", [OTHER_ID]),
    "invited": Field("Who may not be added and was invited.", []),
    "MembersAdded.sequence": Field("The position of the last addition; null if there is none.", 47),
    "MembersAdded.message_id": Field("The id of that entry.", MESSAGE_ID),
    "MembersAdded.user_id": Field("Whom that entry added, or who was invited last.", OTHER_ID),
    "invitations": Field("In the order of the ids."),
    "InvitationInfo.role": Field("The role that is offered.", "member"),
    "InvitationInfo.user_id": Field("Who is invited.", USER_ID),
    "InvitationInfo.expires_at": Field("When the invitation ends by itself.", TIME),
    "by": Field("Who invites.", OTHER_ID),
    "by_username": Field("The inviter's username.", "ben"),
    "by_display_name": Field("What people call the inviter.", "Ben"),
    "invited_at": Field("When.", TIME),
    "joined_at": Field("When the member joined.", TIME),
    "joined_sequence": Field("The position at which the member joined; 0 for the first members.", 0),
    "members": Field("Ordered by `user_id`."),
    "chats": Field("The chats that changed, last changed first."),
    "ChatList.token": Field("The next `changed_since`.", "12.40"),
    "complete": Field("Whether nothing follows now.", True),
    "left": Field("True in a chat that you have left; absent else."),
    "last_acked_sequence": Field("How far this device has acknowledged.", 40),
    "unread": Field("How many messages of others you have not read.", 7),
    "unread_more": Field("Whether there may be more than `unread`.", False),
    "peer": Field("The other person of a direct chat; null in a group."),
    "last_entry": Field("The last entry of the log; null in an empty one."),
    # Messages and receipts
    "client_message_id": Field("A UUIDv4 that the client makes for each message.", CLIENT_MESSAGE_ID),
    "message_id": Field("The entry's id.", MESSAGE_ID),
    "content": Field("At most 64 KiB in UTF-8.", "hello"),
    "content_type": Field("A media type; the server does not look into the content.", "text/plain"),
    "display_time": Field("When the message was written, by the client's clock; orders nothing.", TIME),
    "after_client_message_id": Field("Store the message only after this earlier one of yours.", None),
    "sequence": Field("The position in the chat's log.", 47),
    "kind": Field("`message`, `member` or `chat`; clients pass over kinds that they do not know.", "message"),
    "sender_id": Field("Who sent the message or made the change.", USER_ID),
    "server_timestamp": Field("The same as `created_at`.", TIME),
    "deduplicated": Field("Whether the message had been stored already.", False),
    "conflict": Field("Whether the stored message has other content than this one.", False),
    "entries": Field("Ascending by position."),
    "voids": Field("Positions that have no entry and never will.", []),
    "from_sequence": Field("The first position of the page.", 47),
    "to_sequence": Field("The last position of the page.", 47),
    "reset": Field("Whether the log is another one than the client knew: it starts anew.", False),
    "SendFound.status": Field("Always `stored`.", "stored"),
    "Receipts.status": Field("What became of the message among the members it was for.", "delivered"),
    "Receipts.member_count": Field("The members it was for: without the sender and later members.", 2),
    "mode": Field("The chat's `read_receipts`.", "full"),
    "delivered": Field("The members who have received it."),
    "read": Field("The members who have read it."),
    "at": Field("When, at the latest.", TIME),
    "marks": Field("One for each member."),
    "delivered_up_to": Field("How far the member has received.", 47),
    "delivered_at": Field("When that position last rose; null at 0.", TIME),
    "read_up_to": Field("How far the member has read.", 40),
    "OverviewChat.read_up_to": Field("How far you have read.", 40),
    "read_at": Field("When that position last rose; null at 0.", TIME),
    "read_by_anybody": Field("How far others have read, in a chat that does not say who.", 40),
}
