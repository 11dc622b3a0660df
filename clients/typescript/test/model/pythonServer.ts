/**
 * The model server of the SDK in Python, in the place of the one in TypeScript: its own process, asked line by line over
 * named pipes (tests/model_server/scenes.py). Reading a pipe waits for the answer, so a test sees no difference.
 */

import { execFileSync, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ClientFrame, Entry, SendFound, ServerFrame } from "../../src/contract.js";
import type { ChatSnapshot } from "../../src/core/members.js";
import { ModelServer, Session } from "./server.js";

const BYTES = 65_536;

interface Said {
  readonly value: unknown;
  readonly sent?: Readonly<Record<string, readonly ServerFrame[]>>;
}

/** A process that runs until its pipe is closed. */
class Pipes {
  readonly #calls: number;
  readonly #answers: number;
  readonly #buffer = Buffer.alloc(BYTES);
  #rest = Buffer.alloc(0);

  constructor(command: string) {
    const folder = mkdtempSync(join(tmpdir(), "parley-model-"));
    const [asked, answered] = [join(folder, "asked"), join(folder, "answered")];
    execFileSync("mkfifo", [asked, answered]);
    const [program = "", ...words] = command.split(" ");
    const cwd = new URL("../../../../", import.meta.url);
    spawn(program, [...words, "--serve", asked, answered], { cwd, stdio: "inherit" }).unref();
    this.#calls = openSync(asked, "w");
    this.#answers = openSync(answered, "r");
    rmSync(folder, { recursive: true });
  }

  ask(call: readonly unknown[]): Said {
    writeSync(this.#calls, `${JSON.stringify(call)}\n`);
    let end = this.#rest.indexOf("\n");
    while (end < 0) {
      const count = readSync(this.#answers, this.#buffer);
      if (count === 0) throw new Error("the model server has ended");
      this.#rest = Buffer.concat([this.#rest, this.#buffer.subarray(0, count)]);
      end = this.#rest.indexOf("\n");
    }
    const line = this.#rest.subarray(0, end).toString();
    this.#rest = this.#rest.subarray(end + 1);
    return JSON.parse(line);
  }

  end(): void {
    closeSync(this.#calls);
    closeSync(this.#answers);
  }
}

let pipes: Pipes | undefined;

/** End the process; the next server begins another one. */
export function endPython(): void {
  pipes?.end();
  pipes = undefined;
}

export const COMMAND = process.env.PARLEY_MODEL_SERVER ?? "";

export class PythonServer extends ModelServer {
  readonly #pipes: Pipes;
  readonly #number: unknown;
  readonly #open = new Map<number, Session>();
  #sessions = 0;
  #limits = "";

  constructor() {
    super();
    pipes ??= new Pipes(COMMAND);
    this.#pipes = pipes;
    this.#number = this.#pipes.ask(["new"]).value;
  }

  #call(name: string, ...args: readonly unknown[]): unknown {
    const limits = [this.pageEntriesMax, this.overviewChatsMax, this.tellsLive];
    if (this.#limits !== limits.join()) {
      this.#limits = limits.join();
      this.#pipes.ask([this.#number, "limits", ...limits]);
    }
    for (const [number, { isOpen }] of this.#open) {
      if (isOpen) continue;
      this.#open.delete(number);
      this.#pipes.ask([this.#number, "close", number]);
    }
    const { value, sent = {} } = this.#pipes.ask([this.#number, name, ...args]);
    for (const [number, frames] of Object.entries(sent)) this.#open.get(Number(number))?.sent.push(...frames);
    return value;
  }

  override addChat(chatId: string, userIds: readonly string[]): void {
    this.#call("add_chat", chatId, userIds);
  }

  override connect(userId: string, deviceId = "device"): Session {
    const session = new Session(this, userId, deviceId);
    this.#sessions += 1;
    this.#open.set(this.#sessions, session);
    this.#call("connect", this.#sessions, userId, deviceId);
    return session;
  }

  override post(chatId: string, senderId: string, content: string, more: Partial<Entry> = {}): Entry {
    return this.#call("post", chatId, senderId, content, more) as Entry;
  }

  override addVoid(chatId: string): void {
    this.#call("add_void", chatId);
  }

  override join(chatId: string, userId: string): void {
    this.#call("join", chatId, userId);
  }

  override leave(chatId: string, userId: string): void {
    this.#call("leave", chatId, userId);
  }

  override mute(chatId: string, userId: string, until: string | null): void {
    this.#call("mute", chatId, userId, until);
  }

  override startOver(chatId: string, kept: number): void {
    this.#call("start_over", chatId, kept);
  }

  override tamper(chatId: string, sequence: number, content: string): void {
    this.#call("tamper", chatId, sequence, content);
  }

  override forgetIds(): void {
    this.#call("forget_ids");
  }

  override comeOnline(userId: string, isOnline: boolean): void {
    this.#call("come_online", userId, isOnline);
  }

  override readUpTo(chatId: string, userId: string, sequence: number): void {
    this.#call("read_up_to", chatId, userId, sequence);
  }

  override log(chatId: string): readonly (Entry | null)[] {
    return this.#call("log", chatId) as (Entry | null)[];
  }

  override acked(userId: string, chatId: string, deviceId = "device"): number {
    return this.#call("acked", userId, chatId, deviceId) as number;
  }

  override read(userId: string, chatId: string): number {
    return this.#call("read", userId, chatId) as number;
  }

  override findSend(chatId: string, clientMessageId: string): SendFound | undefined {
    return (this.#call("find_send", chatId, clientMessageId) ?? undefined) as SendFound | undefined;
  }

  override snapshot(chatId: string, viewerId: string): ChatSnapshot | undefined {
    return (this.#call("snapshot", chatId, viewerId) ?? undefined) as ChatSnapshot | undefined;
  }

  protected override done(session: Session, frame: ClientFrame): void {
    for (const [number, open] of this.#open) {
      if (open === session) this.#call("answer", number, frame);
    }
  }
}
