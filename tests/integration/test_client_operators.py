"""The SDK about people: links, reports, who may post, deletions of one's own; against a real server."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from msgspec import UNSET

from parley.client import BadToken, Client, RequestRefused, connect, login, register, reset_password
from parley.model import ChatType, ReportStatus, Role
from tests.harness.server import ServerProcess, run_parley
from tests.integration.sdk import PASSWORD, QUICK, client, new_group, newcomer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("operators") / "data") as started:
        yield started


@asynccontextmanager
async def operator(server: ServerProcess, name: str = "root") -> AsyncIterator[Client]:
    def made(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_parley(*arguments, environment={"PARLEY_DATA": str(server.data)})

    await asyncio.to_thread(made, "user", "add", name, "--operator")
    token = (await asyncio.to_thread(made, "token", name)).stdout.strip()
    async with connect(server.url, token, timing=QUICK) as root:
        yield root


@pytest.mark.timeout(120)
async def test_operators_and_those_they_care_for(server: ServerProcess) -> None:
    """An invitation, a new password, a report, an erasure: each by its own call."""
    async with operator(server) as root:
        link = await root.operators.invite(uses=1, note="for dan")
        dan = await register(server.url, "dan", PASSWORD, invite=link.token)
        with pytest.raises(RequestRefused) as refused:
            await register(server.url, "dora", PASSWORD, invite=link.token)
        assert refused.value.code == "link_used"
        (listed,) = await root.operators.invites()
        assert (listed.state, listed.used_by) == ("used", [dan])
        assert [user.user_id for user in await root.operators.find_users("dan")] == [dan]

        reset = await root.operators.offer_password_reset(dan)
        await reset_password(server.url, reset.token, "another password")
        token = await login(server.url, "dan", "another password")

        ann = await newcomer(server)
        chat_id = await new_group(server, [ann])
        async with client(server.url, ann) as me, connect(server.url, token, timing=QUICK) as other:
            await me.chat(chat_id).add_member(dan)
            ack = await me.chat(chat_id).send("rude")
            made = await other.chat(chat_id).report(ack.message_id, "it is rude")
            (report,) = await root.operators.reports()
            assert (report.report_id, report.reason) == (made.report_id, "it is rude")
            acted = await root.operators.act_on_report(made.report_id, "it is rude", delete_message=True)
            assert (acted.done, acted.report.status) == (["delete_message"], ReportStatus.OPEN)
            done = await root.operators.resolve_report(made.report_id, "dismissed")
            assert done.status is ReportStatus.RESOLVED

            info = await me.chat(chat_id).announce_only()
            assert info.announcement_only
            with pytest.raises(RequestRefused) as closed:
                await other.chat(chat_id).send("no")
            assert closed.value.code == "announcement_only"
            await me.chat(chat_id).announce_only(False)
            assert (await me.chat(chat_id).set_slow_mode(1)).slow_mode_seconds == 1
            sent = [other.chat(chat_id).send(text) for text in ("one", "two")]
            first, second = [await one for one in sent]
            assert first.sequence < second.sequence, "the outbox waits, and both arrive"

            with pytest.raises(BadToken, match="password"):
                await me.delete_account("wrong")
            await me.delete_account(PASSWORD, erase=True)
        with pytest.raises(BadToken):
            async with client(server.url, ann):
                pass
        assert (await root.operators.erasure(ann.user_id)).user_id == ann.user_id
        assert await root.operators.api_tokens() == []


@pytest.mark.timeout(120)
async def test_operators_look_at_chats(server: ServerProcess) -> None:
    """The list, one chat, its members, and its log, whose bodies need a reason."""
    async with operator(server) as root:
        ann = await newcomer(server)
        chat_id = await new_group(server, [ann])
        async with client(server.url, ann) as me:
            ack = await me.chat(chat_id).send("between us")
        assert chat_id in [chat.chat_id for chat in await root.operators.find_chats(chat_type=ChatType.GROUP)]
        assert (await root.operators.chat(chat_id)).head == ack.sequence
        (member,) = await root.operators.chat_members(chat_id)
        assert (member.user_id, member.role) == (ann.user_id, Role.OWNER)
        (line,) = (await root.operators.chat_log(chat_id, ack.message_id, 1)).entries
        assert (line.size, line.content) == (len("between us"), UNSET)
        (line,) = (await root.operators.chat_log(chat_id, ack.sequence, 1, reveal="a report")).entries
        assert line.content == "between us"


@pytest.mark.timeout(120)
async def test_operators_look_at_people_and_servers(server: ServerProcess) -> None:
    """One person, who is an operator, the audit log, the numbers of the last hour, and connections."""
    async with operator(server) as root:
        ann = await newcomer(server)
        chat_id = await new_group(server, [ann])
        async with client(server.url, ann) as me:
            ack = await me.chat(chat_id).send("rude")
            (connection,) = await root.operators.connections(ann.user_id)
            assert connection.user_id == ann.user_id
        assert [chat.chat_id for chat in (await root.operators.person(ann.user_id)).chats] == [chat_id]
        assert (await root.operators.make_operator(ann.user_id)).is_operator
        assert not (await root.operators.end_operator(ann.user_id)).is_operator
        page = await root.operators.audit(target=ann.user_id, action="operator.add")
        assert [record.outcome for record in page.records] == ["done"]
        assert set((await root.operators.series("connections", "lag")).series) == {"connections", "lag"}
        assert (await root.operators.overview()).dead_letters == 0
        await root.operators.rename_chat(chat_id, "Kind")
        await root.operators.delete_message(chat_id, ack.message_id, "a report")
        (line, *_) = (await root.operators.chat_log(chat_id, 1, 1)).entries
        assert line.deleted
        preview = await root.operators.preview_dead_letters(error="timeout")
        assert (await root.operators.replay_dead_letters(preview)).matched == 0
        assert (await root.operators.recover_chat(chat_id)).status == "fine"
        assert (await root.operators.delete_chat(chat_id, "a report")).job_id == "erasures"


@pytest.mark.timeout(120)
async def test_operators_and_their_servers(server: ServerProcess) -> None:
    """Nodes, jobs, connections, what is owed to others, backups: each by its own call."""
    async with operator(server, "rita") as root:
        operators = root.operators
        (node,) = await operators.nodes()
        assert (node.is_self, node.silent) == (True, None)
        assert "log_hashes" in {job.name for job in await operators.jobs()}
        assert (await operators.run_job("expired_sessions")).node == node.node_id
        assert set((await operators.series("connections", node=node.node_id)).series) == {"connections"}
        (mine,) = await operators.connections(root.user_id, node.node_id)
        assert mine.address == "127.0.0.1"
        assert [topic.name for topic in await operators.topics()] == ["messages.persisted"]
        assert (await operators.webhooks(), await operators.dead_letter_jobs()) == ([], [])
        assert (await operators.dead_letter_summary(status="pending")).total == 0
        assert (await operators.backups()).target is None
        assert {one.provider for one in (await operators.push()).providers} >= {"apns", "webpush"}
        for refused in (operators.drain_node("nobody"), operators.silence_device(root.user_id, "none")):
            with pytest.raises(RequestRefused) as error:
                await refused
            assert error.value.code == "not_found"
