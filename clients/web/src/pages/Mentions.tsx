/** Completes an @ with the people of the chat. */

import { type Signal, useSignal } from "@preact/signals";
import type { Chat, Member } from "parley-chat";
import { Avatar } from "parley-ui/controls.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import c from "./Mentions.module.css";

export interface MentionState {
  /** Where the @ is, and what follows it up to the cursor. */
  readonly at: number;
  readonly query: string;
  readonly chosen: number;
}

const SHOWN_MAX = 6;
const MENTIONS_MAX = 100;
const BEFORE = /(?:^|[\s([{"'])@([a-z0-9._-]{0,64})$/i;

/** The @ before the cursor; null if there is none. */
export function mentionAt(text: string, cursor: number): MentionState | null {
  const query = BEFORE.exec(text.slice(0, cursor))?.[1];
  return query === undefined
    ? null
    : { at: cursor - query.length - 1, query: query.toLowerCase(), chosen: 0 };
}

/** The text with the name in it, and where the cursor is then. */
export function completed(text: string, state: MentionState, username: string): readonly [string, number] {
  const before = `${text.slice(0, state.at)}@${username} `;
  return [before + text.slice(state.at + 1 + state.query.length).replace(/^ /, ""), before.length];
}

/** The ids of members whose names stand after an @ in the text. */
export function mentionsIn(text: string, chat: Chat): string[] {
  const names = new Set(
    [...text.matchAll(/@([a-z0-9][a-z0-9._-]*)/gi)].map(([, name = ""]) =>
      name.replace(/[._-]+$/, "").toLowerCase(),
    ),
  );
  if (names.size === 0) return [];
  return [...chat.members.values()]
    .filter((member) => names.has(member.username))
    .map((member) => member.userId)
    .slice(0, MENTIONS_MAX);
}

function found(chat: Chat, query: string, ownId: string): Member[] {
  const begins = (name: string) => name.toLocaleLowerCase().startsWith(query);
  return [...chat.members.values()]
    .filter(
      (member) =>
        member.userId !== ownId && (begins(member.username) || member.displayName.split(" ").some(begins)),
    )
    .slice(0, SHOWN_MAX);
}

type MentionsProps = { state: Signal<MentionState | null>; chat: Chat; onChoose: (username: string) => void };

let shown: readonly Member[] = [];

export function Mentions({ state, chat, onChoose }: MentionsProps) {
  const { live, person } = useApp();
  live.watch("members", chat.chatId);
  const hovered = useSignal(-1);
  const now = state.value;
  shown = now ? found(chat, now.query, person.userId) : [];
  if (!now || shown.length === 0) return null;
  const chosen = hovered.value >= 0 ? hovered.value : now.chosen % shown.length;
  return (
    <div role="listbox" id="mention-list" aria-label={s.mentions} class={c.list} tabIndex={-1}>
      {shown.map((member, at) => {
        const name = plainName(member.displayName || member.username);
        return (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the text field
          <div
            key={member.userId}
            role="option"
            tabIndex={-1}
            aria-selected={at === chosen}
            class={c.option}
            onMouseEnter={() => {
              hovered.value = at;
            }}
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => onChoose(member.username)}
          >
            <Avatar id={member.userId} name={name} size={32} />
            <bdi class={c.name}>{name}</bdi>
            <span class={c.username}>@{member.username}</span>
          </div>
        );
      })}
    </div>
  );
}

/** A key of the text field while the list is open. Whether it was for the list. */
Mentions.key = (
  event: KeyboardEvent,
  state: Signal<MentionState | null>,
  choose: (username: string) => void,
): boolean => {
  const now = state.value;
  if (!now || shown.length === 0) return false;
  const at = now.chosen % shown.length;
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (move !== undefined) state.value = { ...now, chosen: (at + move + shown.length) % shown.length };
  else if (event.key === "Enter" || event.key === "Tab") choose(shown[at]?.username ?? "");
  else if (event.key === "Escape") state.value = null;
  else return false;
  event.preventDefault();
  event.stopPropagation();
  return true;
};
