/** The people, or the emoji, that what is being written may mean. */

import type { Chat, MemberInfo } from "parley-chat";
import { Avatar } from "parley-ui/controls.js";
import { useEffect } from "preact/hooks";
import type { Conversation } from "../app/conversation.js";
import { useApp } from "../app/state.js";
import type { Suggestion, Suggestions } from "../app/suggest.js";
import { s } from "../strings.en.js";
import { groups } from "../text/emoji.js";
import { plainName } from "../text/parse.js";
import c from "./SuggestionList.module.css";

const SHOWN_MAX = 6;
const ASK_MS = 150;

interface Person {
  readonly userId: string;
  readonly username: string;
  readonly displayName: string;
}

const suggestionOf = ({ userId, username, displayName }: Person): Suggestion => ({
  key: userId,
  text: `@${username}`,
  name: plainName(displayName || username),
  more: `@${username}`,
  userId,
});

/** Members whose names begin like this, of those whom the page knows. */
function known(chat: Chat, query: string, ownId: string): Suggestion[] {
  const begins = (name: string) => name.toLocaleLowerCase().startsWith(query);
  return [...chat.members.values()]
    .filter(
      (one) => one.userId !== ownId && (begins(one.username) || one.displayName.split(" ").some(begins)),
    )
    .slice(0, SHOWN_MAX)
    .map(suggestionOf);
}

function emoji(query: string): Suggestion[] {
  const all = groups.flatMap((group) => group.emoji);
  const begins = all.filter(([, name]) => name.split(" ").some((word) => word.startsWith(query)));
  return begins.slice(0, SHOWN_MAX).map(([text, name]) => ({ key: text, text, name: text, more: name }));
}

type ListProps = {
  suggestions: Suggestions;
  conversation: Conversation;
  onChoose: (suggestion: Suggestion) => void;
};

export default function SuggestionList({ suggestions, conversation, onChoose }: ListProps) {
  const { person, people, live } = useApp();
  const { chat, info } = conversation;
  live.watch("members", chat.chatId);
  const asked = suggestions.asked.value;
  const count = chat.members.size;
  useEffect(() => {
    if (!asked) return undefined;
    if (asked.sign === ":") {
      suggestions.all.value = emoji(asked.query);
      return undefined;
    }
    const here = known(chat, asked.query, person.userId);
    suggestions.all.value = here;
    // Of a chat with very many members the page may not know them all yet.
    const isWhole = count >= (info.value?.member_count ?? 0);
    if (isWhole || here.length === SHOWN_MAX || !asked.query) return undefined;
    const timer = setTimeout(() => void ask(), ASK_MS);
    const ask = async () => {
      const query = { q: asked.query, limit: SHOWN_MAX + 1 };
      const route = "GET /v1/chats/{chat_id}/members";
      const found = await chat.client.http
        .call(route, { path: { chat_id: chat.chatId }, query })
        .catch(() => ({ members: [] as MemberInfo[] }));
      if (suggestions.asked.peek() !== asked) return;
      for (const one of found.members) people.note(one);
      suggestions.all.value = found.members
        .filter((one) => one.user_id !== person.userId)
        .slice(0, SHOWN_MAX)
        .map((one) =>
          suggestionOf({ userId: one.user_id, username: one.username, displayName: one.display_name }),
        );
    };
    return () => clearTimeout(timer);
  }, [asked, count]);
  const all = suggestions.all.value;
  if (!asked || all.length === 0) return null;
  const chosen = suggestions.chosen.value % all.length;
  return (
    <div
      role="listbox"
      id="suggestions"
      aria-label={asked.sign === "@" ? s.mentions : s.emoji}
      class={c.list}
      tabIndex={-1}
    >
      {all.map((one, at) => (
        // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the text field
        <div
          key={one.key}
          id={`suggestion-${at}`}
          role="option"
          tabIndex={-1}
          aria-selected={at === chosen}
          class={c.option}
          onMouseEnter={() => {
            suggestions.chosen.value = at;
          }}
          onMouseDown={(event) => event.preventDefault()}
          onClick={() => onChoose(one)}
        >
          {one.userId && <Avatar id={one.userId} name={one.name} size={32} />}
          <bdi class={one.userId ? c.name : c.emoji}>{one.name}</bdi>
          <span class={c.username}>{one.more}</span>
        </div>
      ))}
    </div>
  );
}
