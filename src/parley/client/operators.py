"""What operators do by the SDK: people, chats, links, reports, tokens. The server refuses everybody else."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from parley.model import ChatType, ReportStatus
from parley.wire.bodies import (
    AuditList,
    DeadLetterJob,
    JobInfo,
    JobList,
    ServerOverview,
    TopicInfo,
    TopicList,
    WebhookAdded,
    WebhookInfo,
    WebhookList,
)
from parley.wire.identity_bodies import ApiTokenInfo, ApiTokenList
from parley.wire.limits import PAGE_ENTRIES_MAX
from parley.wire.operator_bodies import (
    BackupList,
    ChatDeletion,
    ChatOverview,
    ConnectionInfo,
    ConnectionList,
    DeadLetterJobInfo,
    DeadLetterJobList,
    DeadLetterPreview,
    DeadLetterSummary,
    JobWanted,
    ListedChatInfo,
    ListedChatPage,
    LogLines,
    MemberPosition,
    MemberPositionPage,
    NodeInfo,
    NodeList,
    PersonInfo,
    PushState,
    RecoveryReport,
    ReportActed,
    Series,
    WebhookTest,
)
from parley.wire.people_bodies import (
    DeletedUser,
    ErasureInfo,
    LinkInfo,
    LinkList,
    LinkMade,
    ReportInfo,
    ReportList,
    UserInfo,
    UserInfoPage,
)

if TYPE_CHECKING:
    from parley.client.api import Api


class OperatorsApi:
    """`RequestRefused` with the code `forbidden` if the person is no operator."""

    def __init__(self, api: Api) -> None:
        self._api = api

    # People

    async def find_users(self, query: str = "") -> list[UserInfo]:
        """People whose username or display name contains this, or who have this id; everybody without it."""
        found: list[UserInfo] = []
        params = {"q": query, "limit": str(PAGE_ENTRIES_MAX)}
        while True:
            page = await self._api.call("GET", "admin/users", UserInfoPage, params=params)
            found += page.users
            if page.next is None:
                return found
            params["after"] = page.next

    async def person(self, user_id: str) -> PersonInfo:
        """A person with their chats, devices and sessions."""
        return await self._api.call("GET", _user(user_id), PersonInfo)

    async def make_operator(self, user_id: str) -> UserInfo:
        return await self._api.call("PUT", f"{_user(user_id)}/operator", UserInfo)

    async def end_operator(self, user_id: str) -> UserInfo:
        """Refused as `last_operator` if there is no other one."""
        return await self._api.call("DELETE", f"{_user(user_id)}/operator", UserInfo)

    async def audit(self, before: str = "", limit: int | None = None, **conditions: str) -> AuditList:
        """A page of what operators did, the newest first; by `actor`, `action`, `target`, times."""
        params = {"before": before, **conditions} | ({"limit": str(limit)} if limit else {})
        return await self._api.call("GET", "admin/audit", AuditList, params=params)

    async def disable_user(self, user_id: str) -> UserInfo:
        """Nothing of theirs is stored any more, and their sessions end."""
        return await self._api.call("POST", f"{_user(user_id)}/disable", UserInfo)

    async def enable_user(self, user_id: str) -> UserInfo:
        """They may log in again."""
        return await self._api.call("POST", f"{_user(user_id)}/enable", UserInfo)

    async def delete_user(self, user_id: str, *, erase: bool = False) -> DeletedUser:
        """Delete an account for good; `erase` also removes what the person wrote."""
        params = {"erase": "bodies"} if erase else None
        return await self._api.call("DELETE", _user(user_id), DeletedUser, params=params)

    async def erasure(self, user_id: str) -> ErasureInfo:
        """What the erasure of a person, or the deletion of a chat, has removed so far."""
        return await self._api.call("GET", f"admin/erasures/{quote(user_id, safe='')}", ErasureInfo)

    # Chats

    async def find_chats(self, query: str = "", chat_type: ChatType | None = None) -> list[ListedChatInfo]:
        """The chats with a part of their title like this, with this id, or of `ann,ben`; the newest first."""
        found: list[ListedChatInfo] = []
        params = {"q": query} | ({"type": chat_type.value} if chat_type is not None else {})
        while True:
            page = await self._api.call("GET", "admin/chats", ListedChatPage, params=params)
            found += page.chats
            if page.next is None:
                return found
            params["after"] = page.next

    async def chat(self, chat_id: str) -> ChatOverview:
        """Its counters and rules, without its messages."""
        return await self._api.call("GET", _chat(chat_id), ChatOverview)

    async def chat_members(self, chat_id: str) -> list[MemberPosition]:
        """Every member, and how far each of their devices is."""
        found: list[MemberPosition] = []
        params: dict[str, str] = {}
        while True:
            path = f"{_chat(chat_id)}/members"
            page = await self._api.call("GET", path, MemberPositionPage, params=params)
            found += page.members
            if page.next is None:
                return found
            params["after"] = page.next

    async def chat_log(
        self, chat_id: str, around: int | str | None = None, limit: int | None = None, reveal: str = ""
    ) -> LogLines:
        """The log around a position or a message; what it says only with a reason, which is recorded."""
        given = {"around": around, "limit": limit, "reveal": reveal or None}
        params = {name: str(value) for name, value in given.items() if value is not None}
        return await self._api.call("GET", f"{_chat(chat_id)}/log", LogLines, params=params)

    async def rename_chat(self, chat_id: str, title: str) -> None:
        """Give a group another title."""
        await self._api.call("PATCH", _chat(chat_id), object, {"title": title})

    async def remove_member(self, chat_id: str, user_id: str) -> None:
        """Take a person out of a group."""
        path = f"{_chat(chat_id)}/members/{quote(user_id, safe='')}"
        await self._api.call("DELETE", path, object)

    async def delete_message(self, chat_id: str, message_id: str, reason: str) -> None:
        """Nobody reads it again, also in a direct chat. The reason is recorded."""
        path = f"{_chat(chat_id)}/messages/{quote(message_id, safe='')}"
        await self._api.call("DELETE", path, object, {"reason": reason})

    async def delete_chat(self, chat_id: str, reason: str) -> ChatDeletion:
        """Take everybody out of it and remove every body; `erasure(chat_id)` says how far that is."""
        return await self._api.call("DELETE", _chat(chat_id), ChatDeletion, {"reason": reason})

    async def recover_chat(
        self, chat_id: str, *, dry_run: bool = True, seal_holes: bool = False
    ) -> RecoveryReport:
        """Restore its lost counter; a dry run only says what it would write."""
        body: dict[str, object] = {"dry_run": dry_run, "seal_holes": seal_holes}
        return await self._api.call("POST", f"{_chat(chat_id)}/recover", RecoveryReport, body)

    # Dead letters

    async def preview_dead_letters(self, **conditions: str) -> DeadLetterPreview:
        """Which dead letters match: `error`, `topic`, `chat_id`, `recipient`, `after`, `before`."""
        body: dict[str, object] = {"filter": conditions}
        return await self._api.call("POST", "admin/dlq/preview", DeadLetterPreview, body)

    async def replay_dead_letters(self, preview: DeadLetterPreview) -> DeadLetterJob:
        """Deliver those of a preview again, and no newer one."""
        return await self._api.call("POST", "admin/dlq/replay", DeadLetterJob, {"token": preview.token})

    async def discard_dead_letters(self, preview: DeadLetterPreview, reason: str) -> DeadLetterJob:
        """Give those of a preview up for good, and no newer one."""
        body: dict[str, object] = {"token": preview.token, "reason": reason}
        return await self._api.call("POST", "admin/dlq/discard", DeadLetterJob, body)

    async def dead_letter_summary(self, **conditions: str) -> DeadLetterSummary:
        """How many match, by error, hour and recipient."""
        return await self._api.call("GET", "admin/dlq/summary", DeadLetterSummary, params=conditions)

    async def dead_letter_jobs(self) -> list[DeadLetterJobInfo]:
        """Replays and discards, the newest first."""
        return (await self._api.call("GET", "admin/dlq/jobs", DeadLetterJobList)).jobs

    # Push

    async def push(self) -> PushState:
        """The providers of notifications, and what became of them since the nodes started."""
        return await self._api.call("GET", "admin/push", PushState)

    async def silence_device(self, user_id: str, device_id: str) -> None:
        """It gets no more notifications until its application registers it again."""
        await self._api.call("DELETE", f"{_user(user_id)}/push/{quote(device_id, safe='')}", object)

    # Webhooks and servers

    async def webhooks(self) -> list[WebhookInfo]:
        """How each is, and what it is owed."""
        return (await self._api.call("GET", "admin/webhooks", WebhookList)).webhooks

    async def pause_webhook(self, webhook_id: str, *, paused: bool = True) -> WebhookInfo:
        """Nothing is sent to it; what it is owed waits. `paused=False`: it goes on."""
        return await self._api.call("PATCH", _webhook(webhook_id), WebhookInfo, {"paused": paused})

    async def test_webhook(self, webhook_id: str) -> WebhookTest:
        """Send it an event now, and say whether it has arrived."""
        return await self._api.call("POST", f"{_webhook(webhook_id)}/test", WebhookTest)

    async def renew_webhook_secret(self, webhook_id: str) -> WebhookAdded:
        """The new secret, shown this once."""
        return await self._api.call("POST", f"{_webhook(webhook_id)}/secret", WebhookAdded)

    async def overview(self) -> ServerOverview:
        return await self._api.call("GET", "admin/overview", ServerOverview)

    async def nodes(self) -> list[NodeInfo]:
        """The nodes that are alive, and how each is."""
        return (await self._api.call("GET", "admin/nodes", NodeList)).nodes

    async def drain_node(self, node_id: str) -> None:
        """It finishes what it took, and ends."""
        await self._api.call("POST", f"admin/nodes/{quote(node_id, safe='')}/drain", object)

    async def jobs(self) -> list[JobInfo]:
        """Every background job with its last runs."""
        return (await self._api.call("GET", "admin/jobs", JobList)).jobs

    async def run_job(self, name: str, node: str = "") -> JobWanted:
        """Run it now, not when it is due."""
        path = f"admin/jobs/{quote(name, safe='')}/run"
        return await self._api.call("POST", path, JobWanted, params={"node": node} if node else None)

    async def topics(self) -> list[TopicInfo]:
        """Topics, and how far their consumers are."""
        return (await self._api.call("GET", "admin/topics", TopicList)).topics

    async def backups(self) -> BackupList:
        """Those at `backup.target`, the newest first."""
        return await self._api.call("GET", "admin/backups", BackupList)

    async def series(self, *names: str, seconds: int = 3_600, node: str = "") -> Series:
        """The last hour of these numbers of a node, without one of that which answers; all without names."""
        params = {"names": ",".join(names), "seconds": str(seconds), "node": node}
        return await self._api.call("GET", "admin/series", Series, params=params)

    async def connections(self, user_id: str = "", node: str = "") -> list[ConnectionInfo]:
        """The open connections of a node; of the one that answers without a name."""
        found: list[ConnectionInfo] = []
        params = {"user_id": user_id, "limit": str(PAGE_ENTRIES_MAX), "node": node}
        while True:
            page = await self._api.call("GET", "admin/connections", ConnectionList, params=params)
            found += page.connections
            if page.next is None:
                return found
            params["after"] = page.next

    async def close_connection(self, connection_id: str, node: str = "") -> None:
        """Its client comes back and goes on where it was."""
        path = f"admin/connections/{quote(connection_id, safe='')}"
        await self._api.call("DELETE", path, object, params={"node": node} if node else None)

    # Links

    async def invite(self, uses: int = 1, expires_in_seconds: int | None = None, note: str = "") -> LinkMade:
        """A link by which so many people register. It is shown this once."""
        body: dict[str, object] = {"uses": uses, "expires_in_seconds": expires_in_seconds, "note": note}
        return await self._api.call("POST", "admin/invites", LinkMade, body)

    async def invites(self) -> list[LinkInfo]:
        """The newest first."""
        found: list[LinkInfo] = []
        params = {"limit": str(PAGE_ENTRIES_MAX)}
        while True:
            page = await self._api.call("GET", "admin/invites", LinkList, params=params)
            found += page.invites
            if page.next is None:
                return found
            params["before"] = page.next

    async def revoke_invite(self, link_id: str) -> None:
        await self._api.call("DELETE", f"admin/invites/{quote(link_id, safe='')}", object)

    async def offer_password_reset(self, user_id: str, expires_in_seconds: int | None = None) -> LinkMade:
        """A link by which a person sets a new password, once. It is shown this once."""
        body: dict[str, object] = {"expires_in_seconds": expires_in_seconds}
        return await self._api.call("POST", f"{_user(user_id)}/password-reset", LinkMade, body)

    # Reports

    async def reports(self, status: ReportStatus | None = ReportStatus.OPEN) -> list[ReportInfo]:
        """Those of the newest messages first; None: of any status."""
        found: list[ReportInfo] = []
        params = {"status": status.value} if status is not None else {}
        while True:
            page = await self._api.call("GET", "admin/reports", ReportList, params=params)
            found += page.reports
            if page.next is None:
                return found
            params["before"] = page.next

    async def resolve_report(self, report_id: str, outcome: str, note: str = "") -> ReportInfo:
        """Say what came of a report."""
        path = f"admin/reports/{quote(report_id, safe='')}/resolve"
        return await self._api.call("POST", path, ReportInfo, {"outcome": outcome, "note": note})

    async def act_on_report(
        self,
        report_id: str,
        reason: str,
        *,
        outcome: str | None = None,
        note: str = "",
        delete_message: bool = False,
        remove_sender: bool = False,
        disable_sender: bool = False,
    ) -> ReportActed:
        """Do what is asked for about its message and its sender; with an outcome, resolve it."""
        path = f"admin/reports/{quote(report_id, safe='')}/act"
        body: dict[str, object] = {
            "outcome": outcome,
            "reason": reason,
            "note": note,
            "delete_message": delete_message,
            "remove_sender": remove_sender,
            "disable_sender": disable_sender,
        }
        return await self._api.call("POST", path, ReportActed, body)

    # Tokens of programs

    async def api_tokens(self) -> list[ApiTokenInfo]:
        return (await self._api.call("GET", "admin/tokens", ApiTokenList)).tokens

    async def revoke_api_token(self, token_id: str) -> None:
        await self._api.call("DELETE", f"admin/tokens/{quote(token_id, safe='')}", object)


def _webhook(webhook_id: str) -> str:
    return f"admin/webhooks/{quote(webhook_id, safe='')}"


def _chat(chat_id: str) -> str:
    return f"admin/chats/{quote(chat_id, safe='')}"


def _user(user_id: str) -> str:
    return f"admin/users/{quote(user_id, safe='')}"
