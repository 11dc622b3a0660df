/**
 * What becomes of a message after it was sent: replies, edits, deletes, reactions. Pure.
 *
 * Each is an entry of its own in the same log. Whoever applies the entries of a log in order shows what
 * `replay` shows, whether or not the entry of the message was brought up to date before it was read.
 */

import type { Entry, Reaction, RepliedMessage } from "../contract.js";
import { bodyDigest } from "./logHash.js";

type Writable<T> = { -readonly [Name in keyof T]: T[Name] };

/** One reaction of a message, and who has it. */
export interface ReactionCount {
  readonly reaction: string;
  readonly count: number;
  readonly userIds: readonly string[];
}

/** What the server said of a message besides its entry, when the log reached `upTo`. */
export interface ShownAt {
  readonly upTo: number;
  readonly reactions: readonly Reaction[];
  readonly replied?: RepliedMessage;
}

/** A message as it is now. */
export interface MessageState {
  readonly entry: Entry;
  /** The ids of the messages that answer it and were not deleted. */
  readonly replies: ReadonlySet<string>;
  /** The most frequent first. */
  readonly reactions: readonly ReactionCount[];
  /** The message that it answers, if the server said what it is like. */
  readonly replied?: RepliedMessage;
}

/** The message with the content of an edit; undefined if it stays as it is: deleted, or edited later. */
export function edited(message: Entry, edit: Entry): Entry | undefined {
  if (message.deleted || edit.deleted || (message.edit_sequence ?? 0) >= edit.sequence) return undefined;
  return {
    ...message,
    content: edit.content,
    body_digest: bodyDigest(message),
    edited_at: edit.created_at,
    edit_sequence: edit.sequence,
  };
}

/** An entry without its body; undefined if it has none, or never had one. */
export function tombstone(entry: Entry): Entry | undefined {
  if ((entry.kind !== "message" && entry.kind !== "edit") || entry.deleted) return undefined;
  const bare: Writable<Entry> = { ...entry, content: "", body_digest: bodyDigest(entry), deleted: true };
  delete bare.mentions;
  delete bare.attachments;
  return bare;
}

class State implements MessageState {
  entry: Entry;
  readonly replies = new Set<string>();
  readonly byReaction = new Map<string, Set<string>>();
  /** Reactions up to here are counted. */
  shownUpTo = 0;
  replied?: RepliedMessage;

  constructor(entry: Entry) {
    this.entry = entry;
  }

  show({ upTo, reactions, replied }: ShownAt): void {
    this.shownUpTo = upTo;
    this.byReaction.clear();
    for (const { reaction, user_ids } of reactions) this.byReaction.set(reaction, new Set(user_ids));
    if (replied) this.replied = replied;
  }

  get reactions(): readonly ReactionCount[] {
    return [...this.byReaction]
      .map(([reaction, people]) => ({ reaction, count: people.size, userIds: [...people].sort() }))
      .sort((one, other) => other.count - one.count || (one.reaction < other.reaction ? -1 : 1));
  }
}

/** The messages of a chat, brought up to date by the entries that are applied in order. */
export class MessageStates {
  readonly #byId = new Map<string, State>();

  /** By message id, in the order of the log. */
  get messages(): ReadonlyMap<string, MessageState> {
    return this.#byId;
  }

  /** The id of the message that an entry adds or changes; undefined for an entry of another kind. */
  apply(entry: Entry, shownAt?: ShownAt): string | undefined {
    if (entry.kind === "message") return this.#add(entry, shownAt);
    const state = this.#byId.get(entry.target_id ?? "");
    if (!state) return undefined;
    if (entry.kind === "edit") state.entry = edited(state.entry, entry) ?? state.entry;
    else if (entry.kind === "delete") this.#delete(state);
    else if (entry.kind === "reaction" && entry.reaction) react(state, entry.reaction, entry);
    else return undefined;
    return state.entry.message_id;
  }

  #add(entry: Entry, shownAt?: ShownAt): string {
    const { message_id: messageId } = entry;
    const state = this.#byId.get(messageId) ?? new State(entry);
    state.entry = entry;
    if (shownAt) state.show(shownAt);
    this.#byId.set(messageId, state);
    if (!entry.deleted) this.#byId.get(entry.reply_to ?? "")?.replies.add(messageId);
    return messageId;
  }

  #delete(state: State): void {
    state.entry = tombstone(state.entry) ?? state.entry;
    state.byReaction.clear();
    this.#byId.get(state.entry.reply_to ?? "")?.replies.delete(state.entry.message_id);
  }
}

function react(state: State, reaction: string, { sender_id: userId, on, sequence }: Entry): void {
  if (state.entry.deleted || sequence <= state.shownUpTo) return;
  const people = state.byReaction.get(reaction) ?? new Set();
  if (on === false) people.delete(userId);
  else people.add(userId);
  if (people.size) state.byReaction.set(reaction, people);
  else state.byReaction.delete(reaction);
}

/** The messages of a log, by their ids, after all of these entries. */
export function replay(entries: Iterable<Entry>): ReadonlyMap<string, MessageState> {
  const states = new MessageStates();
  for (const entry of entries) states.apply(entry);
  return states.messages;
}
