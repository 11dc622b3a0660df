/** Every chat, and one of them. */

import { useSignal } from "@preact/signals";
import type { ListedChatInfo } from "parley-chat";
import { Button, Field, Select } from "parley-ui/controls.js";
import { useEffect } from "preact/hooks";
import { api } from "../app/api.js";
import { type Feed, useFeed } from "../app/feed.js";
import { hrefOf, place, refine } from "../app/route.js";
import { Page } from "../parts/Page.js";
import { Filters, Id, Name, quiet, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, More, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";
import { OneChat } from "./OneChat.js";
import { usePages } from "./pagesOf.js";

export default function Chats() {
  const { name, id } = place.value;
  return name === "chat" && id ? <OneChat key={id} chatId={id} /> : <List />;
}

/** "Garden", or the two people of a direct chat. */
export function titleOf(chat: Pick<ListedChatInfo, "title" | "people" | "chat_id">): string {
  return chat.title || chat.people.map((one) => one.display_name || one.username).join(", ") || chat.chat_id;
}

const COLUMNS: readonly Column<ListedChatInfo>[] = [
  {
    name: s.chat,
    cell: (chat) => (
      <>
        <Name of={titleOf(chat)} href={hrefOf("chat", chat.chat_id)} />
        <Id of={chat.chat_id} />
      </>
    ),
  },
  {
    name: s.type,
    cell: ({ type }) => <Tag look={type === "group" ? "accent" : "plain"}>{s.chatTypes[type]}</Tag>,
  },
  { name: s.members, cell: ({ member_count }) => number(member_count), isNumber: true },
  { name: s.head, cell: ({ head }) => `#${number(head)}`, isNumber: true },
  { name: s.created, cell: ({ created_at }) => <Time at={created_at} /> },
];

function List() {
  const { query } = place.value;
  const [q, type] = [query.get("q") ?? "", query.get("type") ?? ""];
  const words = useSignal(q);
  useEffect(() => {
    words.value = q;
  }, [q]);
  const pages = usePages([q, type], async (after) => {
    const asked = { ...(q && { q }), ...(type && { type }), ...(after && { after }) };
    const { chats, next } = await api("GET /v1/admin/chats", { query: asked });
    return { items: chats, next };
  });
  const search = (nextType: string) => refine(hrefOf("chats", "", { q: words.value.trim(), type: nextType }));
  const feed: Feed<{ items: readonly ListedChatInfo[]; next: string | null }> = useFeed(pages.load, [
    q,
    type,
  ]);
  return (
    <Page title={s.chats}>
      <Filters onSubmit={() => search(type)}>
        <Field label={s.searchChats} value={words} type="search" autoComplete="off" />
        <Select label={s.type} value={type} options={s.chatTypeFilter} onChange={search} />
        <Button type="submit">{s.search}</Button>
      </Filters>
      <Shown
        feed={feed}
        empty={{
          when: ({ items, next }) => items.length === 0 && next === null,
          say: <strong>{q ? s.noChatMatches(q) : s.noChats}</strong>,
        }}
      >
        {({ items, next }) => (
          <>
            <p class={quiet}>{q ? s.foundHint : s.newestFirst}</p>
            <Table name={s.chats} columns={COLUMNS} rows={items} keyOf={({ chat_id }) => chat_id} />
            {next && <More onMore={() => void pages.more(feed)} />}
          </>
        )}
      </Shown>
    </Page>
  );
}
