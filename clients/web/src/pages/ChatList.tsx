/** The chats of the person, newest first. */

import { type Signal, useSignal } from "@preact/signals";
import { Avatar, Button, IconButton } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Icon } from "parley-ui/Icon.js";
import { useLater } from "parley-ui/later.js";
import { listTime } from "parley-ui/time.js";
import type { HTMLAttributes } from "preact";
import { forwardRef, memo } from "preact/compat";
import { useEffect, useRef } from "preact/hooks";
import { Virtualizer } from "virtua";
import type { ChatRow } from "../app/chats.js";
import { go, hrefOf, route } from "../app/route.js";
import { ownProfile, useApp } from "../app/state.js";
import { lineOf } from "../app/summary.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import c from "./ChatList.module.css";
import { panel } from "./panels.js";

type Filter = "all" | "unread" | "mentions";

const SKELETON_ROWS = 8;
const ROW_HEIGHT = 72;
const LINE_CHARS_MAX = 160;

export function ChatList() {
  const { chats, client, live } = useApp();
  const query = useSignal("");
  const filter = useSignal<Filter>("all");
  const isMaking = useSignal(false);
  const NewChat = useLater(isMaking.value ? loadNewChat : null);
  live.watch("unread");
  const wanted = query.value.trim().toLocaleLowerCase();
  const rows = chats.sorted.value.filter(
    (row) =>
      matches(chats.titleOf(row.chatId), wanted) && passes(row, filter.value, client.chat(row.chatId).unread),
  );
  return (
    <>
      <Head
        onNew={() => {
          isMaking.value = true;
        }}
        query={query}
        filter={filter}
      />
      <Invited />
      <List
        rows={rows}
        query={query.value}
        onNew={() => {
          isMaking.value = true;
        }}
      />
      {NewChat && (
        <NewChat
          onClose={() => {
            isMaking.value = false;
          }}
        />
      )}
    </>
  );
}

const searchMessages = (query: string) => {
  panel.value = { shown: "search", chatId: null, query: query.trim() };
};
const loadNewChat = () => import("./NewChat.js");

const matches = (title: string, wanted: string) => !wanted || title.toLocaleLowerCase().includes(wanted);

function passes(row: ChatRow, filter: Filter, unread: number): boolean {
  if (filter === "unread") return unread > 0;
  return filter === "all" || (row.unreadMentions > 0 && unread > 0);
}

/** How many chats wait for an answer. */
function Invited() {
  const { client, live } = useApp();
  live.watch("invitations");
  const count = useSignal(0);
  useEffect(() => {
    const load = () => {
      if (!client.isOnline) return;
      client.invitations.all().then(
        (all) => {
          count.value = all.length;
        },
        () => {},
      );
    };
    load();
    const offs = [client.on("invitations", load), client.on("connection", load)];
    return () => {
      for (const off of offs) off();
    };
  }, [client]);
  if (count.value === 0) return null;
  const name = s.invitationsButton(count.value);
  return (
    <button type="button" class={c.invited} onClick={() => go(hrefOf.page("invitations"))}>
      <Icon name="mail" />
      {name}
    </button>
  );
}

type HeadProps = { onNew: () => void; query: Signal<string>; filter: Signal<Filter> };

function Head({ onNew, query, filter }: HeadProps) {
  const { person } = useApp();
  const name = ownProfile.value?.display_name || person.username;
  const filters: readonly (readonly [Filter, string])[] = [
    ["all", s.filterAll],
    ["unread", s.filterUnread],
    ["mentions", s.filterMentions],
  ];
  return (
    <div class={c.head}>
      <div class={c.top}>
        <a class={c.own} href={hrefOf.page("settings")} aria-label={s.settings} title={s.settings}>
          <Avatar id={person.userId} name={name} size={40} />
        </a>
        <strong class={c.brand}>{s.product}</strong>
        <IconButton icon="compose" name={s.newChat} onClick={onNew} />
      </div>
      <div class={c.search}>
        <Icon name="search" size={18} />
        <input
          id="search-chats"
          type="search"
          class={c.searchField}
          aria-label={s.search}
          placeholder={s.search}
          value={query.value}
          autocomplete="off"
          onInput={(event) => {
            query.value = event.currentTarget.value;
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape" && query.value) {
              event.preventDefault();
              query.value = "";
            }
            if (event.key === "Enter" && query.value.trim()) searchMessages(query.value);
          }}
        />
      </div>
      <fieldset class={c.filters} aria-label={s.filter}>
        {filters.map(([value, text]) => (
          <button
            key={value}
            type="button"
            class={c.filter}
            aria-pressed={filter.value === value}
            onClick={() => {
              filter.value = value;
            }}
          >
            {text}
          </button>
        ))}
      </fieldset>
    </div>
  );
}

function List({ rows, query, onNew }: { rows: readonly ChatRow[]; query: string; onNew: () => void }) {
  const { chats, client } = useApp();
  const scroller = useRef<HTMLDivElement>(null);
  const at = route.value;
  const open = at.page === "chat" ? at.chatId : null;
  useEffect(() => {
    const step = (event: KeyboardEvent) => {
      if (!event.altKey || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
      event.preventDefault();
      const list = event.shiftKey ? rows.filter((row) => client.chat(row.chatId).unread > 0) : rows;
      const now = list.findIndex((row) => row.chatId === open);
      const next =
        list[event.key === "ArrowDown" ? now + 1 : Math.max(0, now < 0 ? list.length - 1 : now - 1)];
      if (next) go(hrefOf.chat(next.chatId));
    };
    addEventListener("keydown", step);
    return () => removeEventListener("keydown", step);
  }, [rows, open]);
  if (!chats.isLoaded.value && rows.length === 0) return <Skeleton />;
  if (rows.length === 0 && !query && chats.rows.value.size === 0) return <Empty onNew={onNew} />;
  return (
    <div ref={scroller} class={c.scroller}>
      {query.trim() && (
        <button type="button" class={c.invited} onClick={() => searchMessages(query)}>
          <Icon name="search" />
          {s.searchEverywhere(query.trim())}
        </button>
      )}
      {rows.length === 0 && <p class={c.none}>{query ? s.noMatch(query) : s.nothingHere}</p>}
      <Virtualizer data={rows} scrollRef={scroller} itemSize={ROW_HEIGHT} as={ListBox} item="li">
        {(row) => <ChatLink key={row.chatId} row={row} isOpen={row.chatId === open} />}
      </Virtualizer>
    </div>
  );
}

const ListBox = forwardRef<HTMLUListElement, HTMLAttributes<HTMLUListElement>>((props, ref) => (
  // biome-ignore lint/a11y/noRedundantRoles: Safari forgets it where lists have no bullets
  <ul {...props} ref={ref} role="list" aria-label={s.chats} />
));

const ChatLink = memo(function ChatLink({ row, isOpen }: { row: ChatRow; isOpen: boolean }) {
  const { client, chats, live, people, person } = useApp();
  live.watch("unread", row.chatId);
  live.watch("typing", row.chatId);
  live.watch("settings", row.chatId);
  live.watch("receipts", row.chatId);
  const chat = client.chat(row.chatId);
  const title = plainName(chats.titleOf(row.chatId)) || s.unnamed;
  const draft = chats.drafts.value.get(row.chatId);
  const isFailed = chat.unsent.some((sending) => sending.status === "failed");
  const typing = chat.typing.map((userId) => plainName(people.name(userId)));
  const isPeerOnline = row.peerId !== null && people.online.value.has(row.peerId);
  return (
    <div class={`${c.row} ${isOpen ? c.open : ""}`}>
      <Avatar
        id={row.peerId ?? row.chatId}
        name={title}
        isGroup={row.type === "group"}
        isOnline={isPeerOnline}
      />
      <span class={c.middle}>
        <span class={c.line}>
          <a
            class={c.title}
            href={hrefOf.chat(row.chatId)}
            aria-describedby={`about-${row.chatId}`}
            aria-current={isOpen ? "page" : undefined}
            data-chat-id={row.chatId}
            data-unread={chat.unread}
          >
            <bdi>{title}</bdi>
          </a>
          {isPeerOnline && <span class="sr">{s.online}</span>}
          {chat.muted && (
            <span role="img" aria-label={s.muted} title={s.muted}>
              <Icon name="bellOff" size={14} />
            </span>
          )}
          <time class={c.time}>{row.last ? listTime(row.at) : ""}</time>
        </span>
        <span class={c.line} id={`about-${row.chatId}`}>
          {typing.length > 0 ? (
            <span class={`${c.last} ${c.typing}`}>{s.isTyping(typing)}</span>
          ) : draft && !isOpen ? (
            <span class={c.last}>
              <span class={c.draft}>{s.draft} </span>
              <bdi>{draft.slice(0, LINE_CHARS_MAX)}</bdi>
            </span>
          ) : (
            <LastLine row={row} ownId={person.userId} />
          )}
          {isFailed && (
            <span class={c.failed} role="img" aria-label={s.notSentMark} title={s.notSentMark}>
              !
            </span>
          )}
          {row.unreadMentions > 0 && chat.unread > 0 && (
            <span class={c.badge} role="img" aria-label={s.mentioned}>
              @
            </span>
          )}
          {chat.unread > 0 && (
            <span class={`${c.badge} ${chat.muted ? c.badgeMuted : ""}`}>
              <span aria-hidden="true">{`${chat.unread}${chat.unreadMore ? "+" : ""}`}</span>
              <span class="sr">{s.unread(chat.unread, chat.unreadMore)}</span>
            </span>
          )}
        </span>
      </span>
    </div>
  );
});

function LastLine({ row, ownId }: { row: ChatRow; ownId: string }) {
  const { people } = useApp();
  const { last } = row;
  if (!last) return <span class={c.last} />;
  const hasSender =
    row.type === "group" &&
    (last.kind === "message" || last.kind === "reaction" || last.kind === "edit" || last.kind === "delete");
  const isOwn = last.sender_id === ownId;
  const sender = isOwn ? s.you : plainName(people.name(last.sender_id)).split(" ")[0];
  const text = lineOf(last, people).slice(0, LINE_CHARS_MAX).replaceAll("\n", " ");
  return (
    <span class={c.last}>
      {(hasSender || (isOwn && last.kind === "message")) && <span class={c.sender}>{sender}: </span>}
      <bdi>{text}</bdi>
    </span>
  );
}

function Empty({ onNew }: { onNew: () => void }) {
  return (
    <div class={c.empty}>
      <Icon name="people" size={40} />
      <p>{s.noChats}</p>
      <p class={controls.hint}>{s.noChatsHint}</p>
      <Button look="primary" onClick={onNew}>
        {s.startChat}
      </Button>
    </div>
  );
}

function Skeleton() {
  return (
    <div class={c.skeleton} role="status" aria-busy="true" aria-label={s.loading}>
      {Array.from({ length: SKELETON_ROWS }, (_, at) => (
        <div key={at} class={c.bone}>
          <span />
          <span />
        </div>
      ))}
    </div>
  );
}
