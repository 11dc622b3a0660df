import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FOLDER } from "./bundle.js";

const run = promisify(execFile);

/** A slip, what was meant instead, and the number of the compiler's error. */
interface Slip {
  readonly slip: string;
  readonly wrong: string;
  readonly right: string;
  readonly error: number;
}

const SLIPS: readonly Slip[] = [
  {
    slip: "a token function that gives no token",
    wrong: 'await connect("https://chat.example", async () => undefined);',
    right: 'await connect("https://chat.example", async () => "prl_1");',
    error: 2345,
  },
  {
    slip: "no token",
    wrong: 'await connect("https://chat.example");',
    right: 'await connect("https://chat.example", "prl_1");',
    error: 2554,
  },
  {
    slip: "an option that does not exist",
    wrong: 'await connect("https://chat.example", "prl_1", { device: "phone" });',
    right: 'await connect("https://chat.example", "prl_1", { deviceId: "phone" });',
    error: 2561,
  },
  {
    slip: "a store instead of what makes one",
    wrong: 'await connect("https://chat.example", "prl_1", { store: "indexeddb" });',
    right: 'await connect("https://chat.example", "prl_1", { store: indexedDb() });',
    error: 2322,
  },
  {
    slip: "an option that is undefined",
    wrong: 'await connect("https://chat.example", "prl_1", { deviceId: undefined });',
    right: 'await connect("https://chat.example", "prl_1", {});',
    error: 2379,
  },
  {
    slip: "a client that was not awaited",
    wrong: 'connect("https://chat.example", "prl_1").chat("chat_1");',
    right: '(await connect("https://chat.example", "prl_1")).chat("chat_1");',
    error: 2339,
  },
  {
    slip: "content that is not text",
    wrong: "chat.send({ text: 'hi' });",
    right: "chat.send(JSON.stringify({ text: 'hi' }), { contentType: 'application/json' });",
    error: 2345,
  },
  {
    slip: "an option of a send by its name on the wire",
    wrong: 'chat.send("hi", { reply_to: "msg_1" });',
    right: 'chat.send("hi", { replyTo: "msg_1" });',
    error: 2561,
  },
  {
    slip: "one mention instead of a list",
    wrong: 'chat.send("hi", { mentions: "user_1" });',
    right: 'chat.send("hi", { mentions: ["user_1"] });',
    error: 2322,
  },
  {
    slip: "a status that does not exist",
    wrong: 'if (chat.send("hi").status === "received") done();',
    right: 'if (chat.send("hi").status === "delivered") done();',
    error: 2367,
  },
  {
    slip: "the position of a message that is not stored yet",
    wrong: 'const at: number = chat.send("hi").sequence;',
    right: 'const at: number = (await chat.send("hi").stored).sequence;',
    error: 2339,
  },
  {
    slip: "a chat that is looped over without await",
    wrong: "for (const entry of chat) done(entry);",
    right: "for await (const entry of chat) done(entry);",
    error: 2488,
  },
  {
    slip: "an entry that is changed",
    wrong: 'entry.content = "another";',
    right: 'const changed = { ...entry, content: "another" };',
    error: 2540,
  },
  {
    slip: "a field that may be missing",
    wrong: "const files: number = entry.attachments.length;",
    right: "const files: number = entry.attachments?.length ?? 0;",
    error: 18048,
  },
  {
    slip: "a content that may be null",
    wrong: "const id: string = entry.client_message_id;",
    right: 'const id: string = entry.client_message_id ?? "";',
    error: 2322,
  },
  {
    slip: "a role that does not exist",
    wrong: 'await chat.setRole("user_1", "moderator");',
    right: 'await chat.setRole("user_1", "admin");',
    error: 2345,
  },
  {
    slip: "a date as a text",
    wrong: 'await chat.mute("2026-01-30");',
    right: 'await chat.mute(new Date("2026-01-30"));',
    error: 2345,
  },
  {
    slip: "an event that does not exist",
    wrong: 'me.on("message", done);',
    right: 'me.on("connection", done);',
    error: 2345,
  },
  {
    slip: "a route that does not exist",
    wrong: 'await me.http.call("GET /v1/chat", {});',
    right: 'await me.http.call("GET /v1/chats", {});',
    error: 2345,
  },
  {
    slip: "a route without what its path needs",
    wrong: 'await me.http.call("GET /v1/chats/{chat_id}", {});',
    right: 'await me.http.call("GET /v1/chats/{chat_id}", { path: { chat_id: "chat_1" } });',
    error: 2345,
  },
  {
    slip: "a body with a field that its route does not take",
    wrong: 'await me.http.call("PATCH /v1/me", { body: { name: "Ann" } });',
    right: 'await me.http.call("PATCH /v1/me", { body: { display_name: "Ann" } });',
    error: 2353,
  },
  {
    slip: "a refusal code with a typing error",
    wrong: 'if (code === "not_a_memer") done();',
    right: 'if (code === "not_a_member") done();',
    error: 2367,
  },
  {
    slip: "a frame that is read before its type is known",
    wrong: "const sequence: number = frame.sequence;",
    right: 'const sequence: number = frame.type === "ack" ? frame.sequence : 0;',
    error: 2339,
  },
  {
    slip: "a presence that is neither online nor offline",
    wrong: 'const isAway: boolean = person.status === "away";',
    right: 'const isAway: boolean = person.status === "offline";',
    error: 2367,
  },
];

const CONTEXT = `
import {
  type Chat, type Client, connect, type Entry, indexedDb, type PresenceView, type RefusalCode, type ServerFrame,
} from "parley-chat";
export async function use(
  me: Client, chat: Chat, entry: Entry, frame: ServerFrame, person: PresenceView, code: RefusalCode,
  done: (...what: unknown[]) => void,
): Promise<void> {
`;
const SETTINGS = {
  strict: true,
  exactOptionalPropertyTypes: true,
  target: "ES2022",
  module: "nodenext",
  lib: ["ES2023", "DOM"],
  types: [],
  noEmit: true,
  paths: { "parley-chat": [join(FOLDER, "dist/index.d.ts")] },
};

let folder = "";
let found: string[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "parley-wrong-uses-"));
  for (const [number, one] of SLIPS.entries()) {
    await writeFile(join(folder, `wrong${number}.ts`), `${CONTEXT}${one.wrong}\n}\n`);
    await writeFile(join(folder, `right${number}.ts`), `${CONTEXT}${one.right}\n}\n`);
  }
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: SETTINGS }));
  const tsc = join(FOLDER, "node_modules/.bin/tsc");
  const { stdout } = await run(tsc, ["--pretty", "false", "--project", folder], { cwd: folder }).catch(
    (failed) => failed,
  );
  found = String(stdout)
    .split("\n")
    .filter((line) => /error TS/.test(line));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

function errorsIn(file: string): string[] {
  return found.filter((line) => line.startsWith(`${file}(`));
}

describe("the compiler", () => {
  test.each(SLIPS.map((one, number) => ({ ...one, number })))("refuses $slip", ({ number, error }) => {
    expect(errorsIn(`right${number}.ts`)).toEqual([]);
    const [refusal, ...others] = errorsIn(`wrong${number}.ts`);
    expect(others).toEqual([]);
    expect(refusal).toContain(`error TS${error}:`);
  });

  test("has nothing else to say", () => {
    expect(found.filter((line) => !/^(wrong|right)\d+\.ts\(/.test(line))).toEqual([]);
  });
});
