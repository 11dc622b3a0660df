"""What the further entries of the SDK in TypeScript do on a real server: files, operators, push."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.applications import Application
from tests.harness.server import ServerProcess, run_parley
from tests.node import build

START = """
import { connect, login, register, resetPassword, RequestRefused } from "parley-chat";
import { filesOf } from "parley-chat/files";
import { operatorsOf } from "parley-chat/operators";
import { pushOf } from "parley-chat/push";
import WebSocket from "ws";

const { PARLEY_URL: url = "", PARLEY_NAME: name = "", PARLEY_ROOT: rootToken = "" } = process.env;
const password = "a long password";
const userId = await register(url, name, password);
const me = await connect(url, await login(url, name, password, { deviceId: "one" }), { WebSocket });
const chat = await me.createChat([], "files");

function check(holds: unknown, what: string): void {
  if (!holds) throw new Error(what);
}
async function codeOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(() => "", (error) => (error instanceof RequestRefused ? error.code : String(error)));
}
"""

FILES = """
const MIB = 1024 * 1024;
const bytes = Uint8Array.from({ length: 10 * MIB + 5 }, (_, at) => (at * 31 + (at >> 12)) & 255);
const file = new Blob([bytes], { type: "application/octet-stream" });
const files = filesOf(chat);
const real = globalThis.fetch;
let sentBytes = 0;
let calls = 0;
/** Each third transfer breaks: before the server has it, or before its answer is there. */
globalThis.fetch = async (address, init) => {
  const range = new Headers(init?.headers).get("content-range");
  const isTransfer = !new Headers(init?.headers).has("authorization");
  calls += isTransfer ? 1 : 0;
  if (isTransfer && calls % 3 === 1) throw new TypeError("broken before");
  const answer = await real(address, init);
  if (range) sentBytes += (init?.body as Blob | undefined)?.size ?? 0;
  if (isTransfer && calls % 3 === 2) throw new TypeError("broken after");
  return answer;
};

const shown: number[] = [];
const uploaded = await files.upload(file, { name: "big", progress: (there) => shown.push(there) });
check(uploaded.size === file.size, "the size of the upload");
check(shown.every((there, at) => at === 0 || there >= (shown[at - 1] ?? 0)), "progress only rises");
check(shown.at(-1) === file.size, "progress ends with the whole");
check(sentBytes === file.size, `what was stored is not sent again: ${sentBytes}`);
const copy = new Uint8Array(await (await files.download(uploaded.attachment_id)).arrayBuffer());
check(Buffer.compare(copy, bytes) === 0, "the download is the file");
console.log("mended");

const control = new AbortController();
const reason = new Error("the person pressed Cancel");
let begun = "";
const cut = files.upload(file, {
  signal: control.signal,
  onBegin: (id) => { begun = id; },
  progress: (there) => { if (there > 0) control.abort(reason); },
});
check((await cut.catch((error) => error)) === reason, "an abort ends it with its reason");
sentBytes = 0;
const rest = await files.upload(file, { attachmentId: begun });
check(rest.size === file.size && sentBytes < file.size, `a later upload goes on: ${sentBytes}`);
console.log("aborted");

globalThis.fetch = async (address, init) => {
  const answer = await real(address, init);
  if (new Headers(init?.headers).has("authorization") || init?.method === "PUT") return answer;
  const other = new Uint8Array(await answer.arrayBuffer());
  other[7] = 255 - (other[7] ?? 0);
  return new Response(other, { status: answer.status });
};
check((await codeOf(files.download(uploaded.attachment_id))) === "checksum_mismatch", "other bytes");
globalThis.fetch = real;
await files.discard(uploaded.attachment_id);
check((await codeOf(files.info(uploaded.attachment_id))) === "not_found", "a discarded file is gone");
console.log("compared");
await me.close();
"""

OPERATORS = """
const root = await connect(url, rootToken, { WebSocket });
const operators = operatorsOf(root);
const link = await operators.invite({ uses: 1, note: "for dan" });
const dan = await register(url, `${name}d`, password, { invite: link.token });
check((await codeOf(register(url, `${name}e`, password, { invite: link.token }))) === "link_used", "once");
check((await operators.invites()).some((one) => one.state === "used"), "the link is listed");
check((await operators.findUsers(`${name}d`))[0]?.user_id === dan, "a person is found");
const reset = await operators.offerPasswordReset(dan);
await resetPassword(url, reset.token, "another password");
const token = await login(url, `${name}d`, "another password", { deviceId: "two" });
const other = await connect(url, token, { deviceId: "two", WebSocket });
await chat.addMember(dan);
const rude = await chat.send("rude").stored;
const made = await other.chat(chat.chatId).report(rude.message_id, "it is rude");
check((await operators.reports()).some((one) => one.report_id === made.report_id), "the report is open");
check((await operators.chat(chat.chatId)).head >= rude.sequence, "a chat is seen");
check((await operators.chatMembers(chat.chatId)).some((one) => one.user_id === dan), "its members are, too");
check((await operators.findChats(chat.chatId))[0]?.chat_id === chat.chatId, "it is found");
const lines = await operators.chatLog(chat.chatId, { around: rude.message_id, limit: 3 });
check(lines.entries.every((one) => one.content === undefined), "nothing is read without a reason");
const acted = await operators.actOnReport(made.report_id, { reason: "it is rude", delete_message: true });
check(acted.done.join() === "delete_message" && acted.report.status === "open", "a report is acted on");
check((await operators.audit({ action: "report.act" })).records.length > 0, "and that is recorded");
await operators.resolveReport(made.report_id, "dismissed");
check(!(await operators.reports()).some((one) => one.report_id === made.report_id), "the report is resolved");
await operators.disable(dan);
const out = await login(url, `${name}d`, "another password").then(() => false, () => true);
check(out, "who is disabled cannot log in");
await operators.enable(dan);
await operators.deleteUser(dan, { erase: true });
check((await operators.erasure(dan)).user_id === dan, "the erasure is told");
const other_link = await operators.invite();
await operators.revokeInvite(other_link.link_id);
check((await operators.apiTokens()).length === 0, "there are no tokens");
const [node] = await operators.nodes();
check(node?.is_self === true && node.silent === null, "the node says how it is");
check((await operators.jobs()).some((job) => job.name === "log_hashes"), "its jobs are listed");
check((await operators.runJob("expired_sessions")).node === node?.node_id, "one runs now");
const { series } = await operators.series({ names: ["connections"], node: node?.node_id ?? "" });
check(Object.keys(series).join() === "connections", "an hour of one number");
const here = await operators.connections({ userId: me.userId });
await operators.closeConnection(here[0]?.connection_id ?? "");
check((await operators.overview()).node_id === node?.node_id, "the overview is of this node");
check((await operators.webhooks()).length === 0, "there are no webhooks");
check((await operators.backups()).target === null, "nobody has said where backups are");
check((await operators.deadLetterSummary({ status: "pending" })).total === 0, "there are no dead letters");
const preview = await operators.previewDeadLetters();
check((await operators.replayDeadLetters(preview)).matched === 0, "none is replayed");
check((await codeOf(operators.drainNode("nobody"))) === "not_found", "another node is none");
check((await codeOf(operatorsOf(me).findUsers())) === "forbidden", "others may not");
console.log("operated");

const KEY = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const push = pushOf(me);
const made_device = await push.register({ provider: "webhook", token: "https://example.com/ring" });
check(made_device.secret, "the secret of a webhook is told once");
check((await push.all())[0]?.device_id === me.deviceId, "this device rings");
let key = "";
const browser = {
  pushManager: {
    subscribe: async (options: { applicationServerKey: string }) => {
      key = options.applicationServerKey;
      const keys = { p256dh: KEY, auth: "BTBZMqHH6r4Tts7J_aSIgg" };
      return { toJSON: () => ({ endpoint: "https://push.example.com/one", keys }) };
    },
  },
};
await push.registerBrowser(browser as unknown as ServiceWorkerRegistration, { preview: true });
check(key.length === 87, "the browser was given the key of the server");
check((await push.all())[0]?.provider === "webpush", "the browser rings in place of the webhook");
await push.remove();
check((await push.all()).length === 0, "nothing rings");
console.log("rang");
await me.close();
await root.close();
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    build()
    with ServerProcess(tmp_path_factory.mktemp("entries") / "data") as started:
        yield started


@pytest.mark.timeout(180)
def test_files_operators_and_push(server: ServerProcess, tmp_path: Path) -> None:
    """Transfers mend themselves and go on after an abort; operators and devices have their calls."""
    data = {"PARLEY_DATA": str(server.data)}
    run_parley("user", "add", "root", "--operator", environment=data)
    token = run_parley("token", "root", environment=data).stdout.strip()
    application = Application(tmp_path)
    application.write("files.ts", START + FILES)
    application.write("operators.ts", START + OPERATORS)
    application.compile()
    for name, said in (
        ("files.js", ("mended", "aborted", "compared")),
        ("operators.js", ("operated", "rang")),
    ):
        env = {"PARLEY_URL": server.url, "PARLEY_NAME": f"u{uuid.uuid4().hex[:12]}", "PARLEY_ROOT": token}
        with application.running(name, env) as output:
            for text in said:
                output.until(text)
            assert output.ended() == 0, "\n".join(output.lines.all())
