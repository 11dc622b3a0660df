/**
 * A stretch of a chat's log around a position, as a screen shows it: from the store at once, then as the server has it.
 *
 * Its entries follow each other: every number from `from` to `to` is an entry or a void. While it reaches to the end of
 * the log it grows as messages arrive. It moves no cursor.
 */

import { callBack } from "./callBack.js";
import type { Batch, Entry, Messages, ShownEntry } from "./contract.js";
import { type MessageState, MessageStates, type ShownAt } from "./core/life.js";
import type { KnownLog } from "./storage/knownLog.js";
import type { Range } from "./storage/room.js";

const ENTRIES_DEFAULT = 50;
/** So much is held; of more, what is at the other end is let go. */
const ENTRIES_MAX = 2_000;
const BYTES_MAX = 4 * 1024 * 1024;
/** More than an entry needs besides its content. */
const ENTRY_OVERHEAD_BYTES = 512;
/** What changed beyond the end is remembered for so many entries. */
const LATER_MAX = 2_000;
/** One that is further behind the end is not brought there in one go. */
const BEHIND_MAX = 500;
const AMENDMENTS: ReadonlySet<string> = /* @__PURE__ */ new Set(["edit", "delete", "reaction"]);

export interface WindowOptions {
  /** A sequence, or a message_id; left out: the end of the log. */
  readonly around?: number | string;
  /** How many positions to begin with, 50 if it is left out. */
  readonly size?: number;
}

/** What a window needs of its chat. */
export interface WindowContext {
  readonly chatId: string;
  readonly known: KnownLog;
  readonly isOnline: boolean;
  /** The end of the log, as far as this client knows it. */
  readonly head: number | undefined;
  /** Of the log, as far as this client knows it: after a restored backup it is another log. */
  readonly epoch: number | undefined;
  page(query: { after?: number; before?: number; limit: number }): Promise<Batch>;
  sequenceOf(messageId: string): Promise<number>;
  left(window: ChatWindow): void;
}

export class ChatWindow {
  readonly #context: WindowContext;
  readonly #listeners = new Set<() => void>();
  #epoch = 0;
  #from = 1;
  #to = 0;
  #entries: Entry[] = [];
  /** Edits, deletes and reactions beyond the end of the window: they change what it shows. */
  #later: Entry[] = [];
  /** By message id: what a page said of it besides its entry. */
  #shownAt = new Map<string, ShownAt>();
  #messages: readonly MessageState[] | null = null;
  #isAtEnd = false;
  #isCatchingUp = false;

  /** @internal */
  constructor(context: WindowContext) {
    this.#context = context;
  }

  /** Every entry, ascending; of kinds that this version does not know, too. */
  get entries(): readonly Entry[] {
    return this.#entries;
  }

  /** The messages among them as they are now: edited, deleted, with the reactions that the server told of, or the window has seen. */
  get messages(): readonly MessageState[] {
    if (!this.#messages) {
      const states = new MessageStates();
      for (const entry of this.#entries) states.apply(entry, this.#shownAt.get(entry.message_id));
      for (const entry of this.#later) states.apply(entry);
      this.#messages = [...states.messages.values()];
    }
    return this.#messages;
  }

  /** The first position; above `to` while there is none. */
  get from(): number {
    return this.#from;
  }

  get to(): number {
    return this.#to;
  }

  get isAtStart(): boolean {
    return this.#from <= 1;
  }

  /** Whether it reaches to the end of the log, as far as this client knows it. */
  get isAtEnd(): boolean {
    return this.#isAtEnd;
  }

  /** Call back after each change; returns what ends it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Stop following the chat. */
  close(): void {
    this.#listeners.clear();
    this.#context.left(this);
  }

  /** Load what is before it. Returns whether there was anything. */
  async older(count = ENTRIES_DEFAULT): Promise<boolean> {
    if (this.isAtStart) return false;
    const from = Math.max(1, this.#from - count);
    const query = { before: this.#from, limit: count };
    return this.#add((await this.#stored(from, this.#from - 1)) ?? (await this.#page(query)));
  }

  /** Load what is behind it. Returns whether there was anything. */
  async newer(count = ENTRIES_DEFAULT): Promise<boolean> {
    if (this.#isAtEnd) return false;
    const query = { after: this.#to, limit: count };
    return this.#add((await this.#stored(this.#to + 1, this.#to + count)) ?? (await this.#page(query)));
  }

  /** @internal Load the first entries. */
  async open({ around, size = ENTRIES_DEFAULT }: WindowOptions): Promise<this> {
    const center = typeof around === "string" ? await this.#context.sequenceOf(around) : around;
    const end = center ?? (await this.#knownEnd());
    const from = Math.max(1, center === undefined ? end - size + 1 : center - (size >> 1));
    const stored = end > 0 ? await this.#stored(from, from + size - 1) : null;
    const query = center === undefined ? { before: Number.MAX_SAFE_INTEGER } : { after: from - 1 };
    if (!stored) this.#begin(await this.#page({ ...query, limit: size }));
    else {
      this.#begin(stored);
      // What is stored may have been edited since, unless everything up to the end is.
      if (this.#context.isOnline && !this.#isAtEnd) void this.#refresh({ ...query, limit: size });
    }
    return this;
  }

  /** @internal A frame of live entries. */
  receive(frame: Messages): void {
    const voids = frame.voids ?? [];
    const numbers = [...frame.entries.map((entry) => entry.sequence), ...voids];
    const [first, last] = [Math.min(...numbers), Math.max(...numbers)];
    if (frame.epoch < this.#epoch) return;
    if (frame.epoch > this.#epoch && this.#epoch > 0) {
      void this.#startOver(frame.epoch);
      return;
    }
    if (last <= this.#to) return;
    if (this.#isAtEnd && first <= this.#to + 1) {
      this.#add({ epoch: frame.epoch, range: [first, last], entries: frame.entries, isAtEnd: true });
      return;
    }
    this.#isAtEnd = false;
    this.#later.push(...frame.entries.filter((entry) => AMENDMENTS.has(entry.kind)));
    this.#later.splice(0, this.#later.length - LATER_MAX);
    this.#changed();
  }

  /** @internal There may be more behind the end: the connection is back. */
  async catchUp(): Promise<void> {
    const { head, epoch = 0 } = this.#context;
    if (epoch > this.#epoch && this.#epoch > 0) return this.#startOver(epoch);
    if (head === undefined || head <= this.#to || this.#isCatchingUp || !this.#isAtEnd) return;
    this.#isAtEnd = false;
    if (head - this.#to > BEHIND_MAX) return this.#changed();
    this.#isCatchingUp = true;
    try {
      while (!this.#isAtEnd && (await this.newer(BEHIND_MAX)));
    } catch {
      // It stays behind until the next connection, or until the application asks.
    }
    this.#isCatchingUp = false;
  }

  /** The log is another one: what is shown of the old one is not in it. */
  async #startOver(epoch: number): Promise<void> {
    const before = this.#epoch;
    this.#epoch = epoch;
    try {
      await this.open({});
    } catch {
      // The next connection tries again.
      this.#epoch = before;
    }
  }

  #begin(stretch: Piece): void {
    this.#epoch = stretch.epoch;
    [this.#from, this.#to] = stretch.range;
    this.#entries = [...stretch.entries];
    this.#shownAt = new Map(stretch.shownAt);
    this.#later = [];
    this.#isAtEnd = stretch.isAtEnd;
    this.#changed();
  }

  async #refresh(query: { after?: number; before?: number; limit: number }): Promise<void> {
    try {
      this.#add(await this.#page(query));
    } catch {
      // What is stored stays.
    }
  }

  /** Put a piece to those that are there; what is newer counts. Returns whether the window reaches further. */
  #add(piece: Piece): boolean {
    const [from, to] = piece.range;
    if (piece.epoch !== this.#epoch || from > this.#to + 1 || to < this.#from - 1) {
      this.#begin(piece);
      return true;
    }
    for (const [messageId, shownAt] of piece.shownAt ?? []) this.#shownAt.set(messageId, shownAt);
    const before = this.#entries.filter((entry) => entry.sequence < from);
    const behind = this.#entries.filter((entry) => entry.sequence > to);
    this.#entries = [...before, ...piece.entries.filter((entry) => entry.sequence <= to), ...behind];
    const [grewDown, grewUp] = [from < this.#from, to > this.#to];
    if (to >= this.#to) this.#isAtEnd = piece.isAtEnd;
    this.#from = Math.min(this.#from, from);
    this.#to = Math.max(this.#to, to);
    this.#later = this.#later.filter((entry) => entry.sequence > this.#to);
    this.#trim(grewDown ? "end" : "start");
    this.#changed();
    return grewDown || grewUp;
  }

  #trim(side: "start" | "end"): void {
    const kept = fitting(side === "end" ? this.#entries : this.#entries.toReversed());
    const tooMany = this.#entries.length - kept;
    if (tooMany <= 0) return;
    if (side === "start") {
      this.#entries.splice(0, tooMany);
      this.#from = this.#entries[0]?.sequence ?? this.#from;
    } else {
      const gone = this.#entries.splice(kept);
      this.#later.unshift(...gone.filter((entry) => AMENDMENTS.has(entry.kind)));
      this.#to = this.#entries.at(-1)?.sequence ?? this.#to;
      this.#isAtEnd = false;
    }
  }

  /** What this device has of a range, if it has all of it; at the end of the log as much of it as there is. */
  async #stored(from: number, to: number): Promise<Piece | null> {
    const { known, chatId, head } = this.#context;
    const wanted = Math.max(this.#epoch, this.#context.epoch ?? 0);
    const { epoch, entries, ranges } = await known.read(chatId, from, to);
    const range = ranges.find(([first, last]) => first <= from && from <= last);
    if (!range || (wanted > 0 && epoch !== wanted)) return null;
    const last = Math.min(to, range[1]);
    if (last < to && head !== undefined && last < head) return null;
    // Before the server has said where the log ends, it is where this device has read it to.
    const end = Math.max(head ?? 0, ranges.at(-1)?.[1] ?? 0);
    return { epoch, range: [from, last], entries, isAtEnd: last >= end };
  }

  async #knownEnd(): Promise<number> {
    const ranges = await this.#context.known.ranges(this.#context.chatId);
    return Math.max(this.#context.head ?? 0, ranges.at(-1)?.[1] ?? 0);
  }

  async #page(query: { after?: number; before?: number; limit: number }): Promise<Piece> {
    const page = await this.#context.page(query);
    const range: Range = [page.from_sequence, page.to_sequence];
    const { epoch, entries, head } = page;
    return {
      epoch,
      range,
      entries: entries.map(bare),
      isAtEnd: page.to_sequence >= head,
      shownAt: shownIn(page),
    };
  }

  #changed(): void {
    this.#messages = null;
    callBack(this.#listeners, undefined);
  }
}

/** How many of these may be held, from the first on. */
function fitting(entries: readonly Entry[]): number {
  let bytes = 0;
  const tooMany = entries.findIndex((entry, at) => {
    bytes += 2 * (entry.content?.length ?? 0) + ENTRY_OVERHEAD_BYTES;
    return at >= ENTRIES_MAX || (at > 0 && bytes > BYTES_MAX);
  });
  return tooMany < 0 ? entries.length : tooMany;
}

/** An entry as the log has it. */
export function bare({ reactions: _, reply_count: __, replied: ___, ...entry }: ShownEntry): Entry {
  return entry;
}

function shownIn({ entries, head }: Batch): Map<string, ShownAt> {
  const shownAt = new Map<string, ShownAt>();
  for (const { message_id, reactions, replied } of entries) {
    if (reactions) shownAt.set(message_id, { upTo: head, reactions, ...(replied && { replied }) });
  }
  return shownAt;
}

/** Entries of a range in which nothing is missing. */
interface Piece {
  readonly epoch: number;
  readonly range: Range;
  readonly entries: readonly Entry[];
  readonly isAtEnd: boolean;
  readonly shownAt?: ReadonlyMap<string, ShownAt>;
}
