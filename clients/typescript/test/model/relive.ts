/**
 * Lives that Python's core has lived, lived again by this one: the same server, network, time and chance.
 *
 * Each line of the input is a life (see tests/model_server/trace.py); each line of the output says where this
 * core did otherwise, or null. Compared are the frames that it sends, events, entries, what it saves, when it
 * wakes, and what it shows in the end.
 */

import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";
import { json } from "../../src/codec.js";
import type { Ack, ClientFrame, Entry, ServerFrame, Welcome } from "../../src/contract.js";
import { ClientCore } from "../../src/core/core.js";
import type { Refusal } from "../../src/core/errors.js";
import type { ClientEvent } from "../../src/core/events.js";
import { replay } from "../../src/core/life.js";
import type { ChatSnapshot } from "../../src/core/members.js";
import { ReadingCore } from "../../src/core/reading.js";
import { type Cursor, cursorAt, type OutgoingMessage, type StateChanges } from "../../src/core/storage.js";

interface Call {
  readonly core: number;
  readonly name: string;
  readonly args?: readonly unknown[];
  readonly was?: unknown;
}

interface Life {
  readonly seed: number;
  readonly wall_ms: number;
  readonly cores: readonly { readonly device: string; readonly chances: readonly number[] }[];
  readonly calls: readonly Call[];
  readonly shown: readonly {
    readonly core: number;
    readonly device: string;
    readonly online: boolean;
    readonly unsent: number;
    readonly chats: Readonly<Record<string, unknown>>;
  }[];
}

type Fields = Readonly<Record<string, unknown>>;

const EVENTS: Readonly<Record<ClientEvent["type"], string>> = {
  stored: "MessageStored",
  refused: "MessageRefused",
  saved: "MessagesSaved",
  check: "CheckMessage",
  entries: "EntriesReady",
  readMarkDone: "ReadMarkDone",
  overviewComplete: "OverviewComplete",
  loadChat: "LoadChat",
  chatOpened: "ChatOpened",
  requestFailed: "RequestFailed",
  update: "Update",
};

/** A value as Python's side writes it: names with underscores, bytes in Base64, nothing where there is null. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (value instanceof Map) return plain(Object.fromEntries(value));
  if (Array.isArray(value) || value instanceof Set) return [...value].map(plain);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined && field !== null);
  return Object.fromEntries(fields.map(([name, field]) => [underscored(name), plain(field)]));
}

const underscored = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** What only one side has: the HTTP status of a refusal, and whether a message is kept. */
const shared = (fields: unknown): unknown =>
  JSON.parse(JSON.stringify(fields), (name, value) =>
    name === "status" && typeof value === "number" ? undefined : name === "is_kept" ? undefined : value,
  );

function messageFrom(fields: unknown): OutgoingMessage {
  const from = fields as Fields;
  return {
    chatId: from.chat_id as string,
    clientMessageId: from.client_message_id as string,
    content: from.content as string,
    contentType: from.content_type as string,
    createdAtMs: from.created_at_ms as number,
    mentions: from.mentions as string[],
    kind: from.kind as "message",
    targetId: from.target_id as string,
    isOn: from.is_on as boolean,
    attachments: from.attachments as string[],
    ...(from.display_time !== null && { displayTime: from.display_time as string }),
    ...(from.reply_to !== null && { replyTo: from.reply_to as string }),
  };
}

function cursorFrom(fields: unknown): Cursor {
  const { epoch, sequence, message_id, log_hash } = fields as Fields;
  const hash = log_hash === null ? null : new Uint8Array(Buffer.from(log_hash as string, "base64"));
  return cursorAt(epoch as number, sequence as number, message_id as string | null, hash);
}

function refusalFrom(fields: unknown): Refusal | undefined {
  if (fields === null) return undefined;
  const { code, reason, temporary, retry_after_ms } = fields as Fields;
  return {
    code: code as string,
    reason: reason as string,
    temporary: temporary as boolean,
    ...(retry_after_ms !== null && { retryAfterMs: retry_after_ms as number }),
  };
}

const keyFrom = (key: unknown): string => (key as string[]).join(" ");

const cursorsFrom = (fields: unknown): Map<string, Cursor> =>
  new Map(Object.entries(fields as Fields).map(([chatId, cursor]) => [chatId, cursorFrom(cursor)]));

/** A core, and what its device saves and shows. */
class Relived {
  readonly core: ClientCore;
  readonly reading: ReadingCore;
  readonly #chances: number[];
  readonly #seen: Map<string, Entry[]>;
  #changes: StateChanges | undefined;

  constructor(chances: readonly number[], seen: Map<string, Entry[]>) {
    this.#chances = [...chances];
    this.#seen = seen;
    const chance = (): number => {
      const drawn = this.#chances.shift();
      if (drawn === undefined) throw new Error("it draws more often than Python's core");
      return drawn;
    };
    this.core = new ClientCore({ chance, durable: true });
    this.reading = this.core.attach(ReadingCore);
  }

  get undrawn(): number {
    return this.#chances.length;
  }

  call(name: string, args: readonly unknown[]): unknown {
    const { core, reading } = this;
    const chat = (at = 0) => core.chat(args[at] as string);
    const now = (at: number) => args[at] as number;
    switch (name) {
      case "restore":
        return this.#restore(args[0] as Fields);
      case "send":
        return core.send(messageFrom(args[0]));
      case "mark_read":
        return reading.markRead(args[0] as string, args[1] as number | string);
      case "ask_overview":
        return core.askOverview();
      case "read":
        return reading.read(chat());
      case "read_all":
        return reading.readAll();
      case "take":
        return this.#take(args[0] as string, now(1));
      case "mark_processed":
        return reading.markProcessed(chat(), now(1));
      case "stop":
        return reading.stop(chat());
      case "open":
        return reading.open(chat());
      case "close":
        return reading.close(chat());
      case "seek":
        return reading.seek(chat(), cursorFrom(args[1]), now(2));
      case "reload_open_chats":
        return reading.reloadOpenChats();
      case "watch_presence":
        return reading.watchPresence(args[0] as string[]);
      case "message_stored":
        return core.messageStored(keyFrom(args[0]), args[1] as Ack, now(2));
      case "message_not_stored":
        return core.messageNotStored(keyFrom(args[0]), now(1));
      case "check_failed":
        return core.checkFailed(keyFrom(args[0]), now(1));
      case "stop_typing":
        return reading.stopTyping(chat());
      case "start_typing":
        return reading.startTyping(chat(), now(1));
      case "chat_loaded":
        return reading.chatLoaded(chat(), args[1] as ChatSnapshot);
      case "load_failed":
        return reading.loadFailed(chat(), refusalFrom(args[1]), now(2));
      case "connected":
        return core.connected(args[0] as Welcome, now(1));
      case "disconnected":
        return core.disconnected();
      case "receive":
        return core.receive(args[0] as ServerFrame, now(1));
      case "tick":
        return core.tick(now(0));
      case "next_wake_ms":
        return core.nextWake();
      case "frames_to_send":
        return core.framesToSend(now(0), now(1)).map((frame: ClientFrame) => json.encode(frame));
      case "events":
        return core.events().map(({ type, ...fields }) => [EVENTS[type], fields]);
      case "to_save": {
        const changes = core.toSave();
        this.#changes = changes;
        const added = changes.added.map((one) => `${one.chatId} ${one.clientMessageId}`);
        return { ...changes, added };
      }
      case "saved": {
        const changes = this.#changes;
        if (!changes) throw new Error("nothing was to be saved");
        this.#changes = undefined;
        return core.saved(changes);
      }
      default:
        throw new Error(`there is no call ${name}`);
    }
  }

  #restore(fields: Fields): void {
    const cursors = cursorsFrom(fields.cursors);
    const outgoing = (fields.outgoing as unknown[]).map(messageFrom);
    // What was seen but not processed comes again.
    for (const [chatId, seen] of this.#seen) {
      const resumed = cursors.get(chatId)?.sequence ?? 0;
      this.#seen.set(
        chatId,
        seen.filter((entry) => entry.sequence <= resumed),
      );
    }
    this.core.restore({ outgoing, cursors });
  }

  /** An application forgets what it shows once the epoch is another or a sequence does not ascend. */
  #take(chatId: string, now: number): Entry | undefined {
    const entry = this.reading.take(this.core.chat(chatId), now);
    if (entry) {
      const seen = this.#seen.get(chatId) ?? [];
      const last = seen.at(-1);
      const goesOn = !last || (entry.epoch === last.epoch && entry.sequence > last.sequence);
      this.#seen.set(chatId, goesOn ? [...seen, entry] : [entry]);
    }
    return entry;
  }

  shown(chatId: string, wall: number): unknown {
    const { core } = this;
    const chat = core.chat(chatId);
    const seen = this.#seen.get(chatId) ?? [];
    const messages = [...replay(seen)].map(([messageId, { entry, replies, reactions }]) => [
      messageId,
      { content: entry.content, deleted: entry.deleted === true, replies: [...replies].sort(), reactions },
    ]);
    return {
      entries: seen,
      messages: Object.fromEntries(messages),
      is_listed: chat.row !== undefined,
      head: chat.row?.head,
      unread: [chat.unreadCount, chat.unreadMore],
      muted: chat.isMuted(wall),
      typing: [...chat.typing],
      is_open: chat.isOpen,
      members: [...chat.members.values()],
      receipts: [1, 2, 3].map((sequence) => chat.receipts(sequence, core.userId) ?? null),
      inbox: chat.inbox && [chat.inbox.epoch, chat.inbox.resolved, chat.inbox.restarts, chat.inbox.wantsSync],
      cursor: this.reading.cursors.get(chatId),
    };
  }
}

/** Frames without what is left to its default: Python's codec writes some of that. */
const framesOf = (was: unknown): string[] =>
  ((was ?? []) as string[]).map((text) => String(json.encode(JSON.parse(text) as ClientFrame)));

/** Where this core did otherwise; null if nowhere. */
function relive(life: Life): string | null {
  const seen = new Map<string, Map<string, Entry[]>>();
  const relived: Relived[] = [];
  for (const [number, { core, name, args = [], was }] of life.calls.entries()) {
    while (relived.length <= core) {
      const one = life.cores[relived.length];
      if (!one) throw new Error(`there is no core ${core}`);
      if (!seen.has(one.device)) seen.set(one.device, new Map());
      relived.push(new Relived(one.chances, seen.get(one.device) ?? new Map()));
    }
    const at = `call ${number}, ${name} of core ${core}`;
    try {
      const is = plain(relived[core]?.call(name, args)) ?? null;
      const before = (name === "frames_to_send" ? framesOf(was) : plain(was)) ?? null;
      if (!isDeepStrictEqual(shared(is), shared(before))) return difference(at, before, is);
    } catch (error) {
      return `${at}: ${error instanceof Error ? error.stack : error}`;
    }
  }
  for (const { core: number, device, online, unsent, chats } of life.shown) {
    const one = relived[number];
    if (!one) return `core ${number} never lived`;
    if (one.core.online !== online || one.core.outbox.size !== unsent) return `${device} is not as it was`;
    for (const [chatId, before] of Object.entries(chats)) {
      const is = one.shown(chatId, life.wall_ms);
      if (!isDeepStrictEqual(plain(is), plain(before))) {
        return difference(`${device} shows of ${chatId}`, plain(before), plain(is));
      }
    }
  }
  const undrawn = relived.findIndex((one) => one.undrawn > 0);
  return undrawn < 0 ? null : `core ${undrawn} drew less often than Python's`;
}

const difference = (at: string, before: unknown, is: unknown): string =>
  `${at}\n  Python:     ${JSON.stringify(before)}\n  TypeScript: ${JSON.stringify(is)}`;

for await (const line of createInterface({ input: process.stdin })) {
  const life: Life = JSON.parse(line);
  process.stdout.write(`${JSON.stringify({ seed: life.seed, difference: relive(life) })}\n`);
}
