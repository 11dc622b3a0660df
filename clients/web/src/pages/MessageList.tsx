/**
 * The messages of a chat: those that are near the screen, over a window of the log.
 *
 * It stays at the end while the person is there, keeps what they look at where it is while older messages are put before
 * it, and tells what they have seen.
 */

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { Icon } from "parley-ui/Icon.js";
import { clockTime } from "parley-ui/time.js";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Virtualizer, type VirtualizerHandle } from "virtua";
import type { Conversation } from "../app/conversation.js";
import type { Row } from "../app/rows.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import { EventLine, MessageItem } from "./Message.js";
import c from "./MessageList.module.css";

/** So near to the end is at the end. */
const END_PIXELS = 100;
/** Older messages come so many screens before they are needed. */
const SCREENS_AHEAD = 2;
const BUFFER_PIXELS = 300;
/** A message counts as seen after this. */
const SEEN_MS = 300;
const MARKED_MS = 2_000;
const ANNOUNCED_MAX = 10;
const ANNOUNCED_CHARS_MAX = 200;
const HALF = 0.5;

export function MessageList({ conversation }: { conversation: Conversation }) {
  const { people } = useApp();
  const list = useRef<VirtualizerHandle>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const rows = conversation.rows.value;
  const isStuck = useRef(true);
  /** The row that the person wants to see: it stays in the middle while what is around it comes. */
  const aim = useRef<string | null>(null);
  const isAway = useSignal(false);
  const marked = useSignal<string | null>(null);
  const focused = useSignal<string | null>(null);
  const shift = useIsPrepended(rows);
  const window = conversation.window.value;
  const hasRows = rows.length > 0;

  const look = () => {
    const handle = list.current;
    if (!handle || !hasRows) return;
    const { scrollOffset, scrollSize, viewportSize } = handle;
    const below = scrollSize - scrollOffset - viewportSize;
    const isAtEnd = conversation.isAtEnd.value;
    isStuck.current = isAtEnd && below <= END_PIXELS;
    isAway.value = !isStuck.current;
    if (scrollOffset < viewportSize * SCREENS_AHEAD) void conversation.older();
    if (below < viewportSize * SCREENS_AHEAD && !isAtEnd) void conversation.newer();
  };
  const toAim = () => {
    const index = conversation.rows.peek().findIndex((row) => row.key === aim.current);
    if (index >= 0) list.current?.scrollToIndex(index, { align: "center" });
  };
  const leaveAim = () => {
    aim.current = null;
  };
  const toEnd = () => list.current?.scrollToIndex(rows.length - 1, { align: "end" });

  // Once for each window: where the person left off, or the end.
  useLayoutEffect(() => {
    if (!hasRows) return;
    const divider = rows.findIndex((row) => row.isFirstUnread);
    isStuck.current = divider < 0;
    if (conversation.wanted.peek()) return;
    if (divider >= 0) list.current?.scrollToIndex(divider, { align: "start", offset: -END_PIXELS / 2 });
    else toEnd();
  }, [window, hasRows]);

  const last = rows.at(-1);
  const isOwnNews = last?.type === "message" && last.sending !== null;
  const lastKey = useRef<string | undefined>(undefined);
  useLayoutEffect(() => {
    const isNew = last?.key !== lastKey.current;
    lastKey.current = last?.key;
    if (isStuck.current || (isNew && isOwnNews)) toEnd();
    else if (aim.current) requestAnimationFrame(toAim);
  }, [rows]);

  // What was just shown may end before the screen does.
  useEffect(() => {
    const frame = requestAnimationFrame(look);
    return () => cancelAnimationFrame(frame);
  }, [rows]);

  useSignalEffect(() => {
    const wanted = conversation.wanted.value;
    const shown = conversation.rows.value;
    if (!wanted || shown.length === 0) return;
    conversation.wanted.value = null;
    if (wanted.sequence === Number.POSITIVE_INFINITY) {
      isStuck.current = true;
      aim.current = null;
      requestAnimationFrame(() =>
        list.current?.scrollToIndex(conversation.rows.peek().length - 1, { align: "end" }),
      );
      return;
    }
    const key = shown[indexOf(shown, wanted.sequence)]?.key ?? null;
    isStuck.current = false;
    aim.current = marked.value = key;
    requestAnimationFrame(toAim);
    setTimeout(() => {
      if (aim.current === key) aim.current = null;
      marked.value = null;
    }, MARKED_MS);
  });

  useFocusKept(rows, scroller, focused);
  useSeen(conversation, scroller, rows);
  const keys = useListKeys(rows, list, scroller, focused);
  const focusedKey = focused.value ?? last?.key;
  return (
    <div class={c.area}>
      {conversation.isLoadingOlder.value && <div class={c.loading}>{s.loadingOlder}</div>}
      <div
        ref={scroller}
        class={c.scroller}
        role="feed"
        id="messages"
        tabIndex={-1}
        aria-label={s.messages}
        aria-busy={!window || conversation.isLoadingOlder.value}
        onWheel={leaveAim}
        onTouchMove={leaveAim}
        onPointerDown={leaveAim}
        onKeyDown={(event) => {
          leaveAim();
          keys(event);
        }}
        onCopy={(event) => copyMany(event, rows, (userId) => plainName(people.name(userId)))}
        onFocusIn={(event) => {
          const key = (event.target as HTMLElement).closest<HTMLElement>("[data-key]")?.dataset.key;
          if (key) focused.value = key;
        }}
      >
        {(!window || hasRows) && <div class={c.spacer} role="none" />}
        {window && !hasRows && <Empty />}
        <Virtualizer
          ref={list}
          data={rows}
          scrollRef={scroller}
          shift={shift}
          bufferSize={BUFFER_PIXELS}
          onScroll={look}
          onScrollEnd={look}
          onResize={() => isStuck.current && toEnd()}
        >
          {(row) => (
            <div key={row.key} role="none" class={c.row}>
              {row.type === "message" ? (
                <MessageItem
                  row={row}
                  isMarked={marked.value === row.key}
                  isFocusable={focusedKey === row.key}
                />
              ) : (
                <EventLine row={row} />
              )}
            </div>
          )}
        </Virtualizer>
      </div>
      {!window && !hasRows && <Loading conversation={conversation} />}
      <ToLatest conversation={conversation} isAway={isAway.value} />
      <News rows={rows} isAtEnd={conversation.isAtEnd.value} head={conversation.chat.head ?? 0} />
      <div class={c.said} role="status">
        {conversation.said.value}
      </div>
    </div>
  );
}

/** Whether rows were put before those that were there. */
function useIsPrepended(rows: readonly Row[]): boolean {
  const first = useRef<string | undefined>(undefined);
  const before = first.current;
  const now = rows[0]?.key;
  useLayoutEffect(() => {
    first.current = now;
  });
  return before !== undefined && now !== before && rows.some((row) => row.key === before);
}

/** A row that is gone gives its focus to the next one. */
function useFocusKept(
  rows: readonly Row[],
  scroller: { readonly current: HTMLDivElement | null },
  focused: { value: string | null },
): void {
  const before = useRef(rows);
  useLayoutEffect(() => {
    const was = before.current;
    before.current = rows;
    const key = focused.value;
    if (!key || rows.some((row) => row.key === key)) return;
    const at = was.findIndex((row) => row.key === key);
    const next = was.slice(at + 1).find((row) => rows.includes(row)) ?? rows[Math.min(at, rows.length) - 1];
    focused.value = null;
    if (at < 0 || !next || document.activeElement !== document.body) return;
    focused.value = next.key;
    requestAnimationFrame(() =>
      scroller.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(next.key)}"]`)?.focus(),
    );
  }, [rows]);
}

/** Several messages are copied as lines with their times and names. */
function copyMany(event: ClipboardEvent, rows: readonly Row[], name: (userId: string) => string): void {
  const selection = getSelection();
  const articles = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("article")].filter(
    (article) => selection?.containsNode(article, true),
  );
  if (articles.length < 2) return;
  const keys = new Set(articles.map(({ dataset }) => dataset.key));
  const lines = rows
    .filter((row) => row.type === "message" && keys.has(row.key))
    .map(({ entry, at }) =>
      s.copiedLine(clockTime(at), name(entry.sender_id), entry.deleted ? s.deletedMessage : entry.content),
    );
  event.clipboardData?.setData("text/plain", lines.join("\n"));
  event.preventDefault();
}

function indexOf(rows: readonly Row[], sequence: number): number {
  const at = rows.findIndex((row) => row.entry.sequence >= sequence);
  return at < 0 ? rows.length - 1 : at;
}

/** Tell what the person has seen: at least half of it, for a moment, in a page that they look at. */
function useSeen(
  conversation: Conversation,
  scroller: { readonly current: HTMLDivElement | null },
  rows: readonly Row[],
): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = () => {
      if (document.visibilityState !== "visible" || !document.hasFocus() || !scroller.current) return;
      const seen = furthestSeen(scroller.current);
      if (seen > 0) conversation.seen(seen);
    };
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(look, SEEN_MS);
    };
    const ended = new AbortController();
    const { signal } = ended;
    scroller.current?.addEventListener("scroll", soon, { signal, passive: true });
    addEventListener("focus", soon, { signal });
    document.addEventListener("visibilitychange", soon, { signal });
    const off = conversation.app.client.on("unread", soon);
    soon();
    return () => {
      clearTimeout(timer);
      ended.abort();
      off();
    };
  }, [conversation, rows]);
}

function furthestSeen(scroller: HTMLElement): number {
  const view = scroller.getBoundingClientRect();
  let furthest = 0;
  for (const article of scroller.querySelectorAll<HTMLElement>("article[data-sequence]")) {
    const { top, bottom, height } = article.getBoundingClientRect();
    const shown = Math.min(bottom, view.bottom) - Math.max(top, view.top);
    if (shown >= Math.min(height, view.height) * HALF) {
      furthest = Math.max(furthest, Number(article.dataset.sequence));
    }
  }
  return furthest;
}

type Handle = { readonly current: VirtualizerHandle | null };

/** One message has the focus; arrows move it. */
function useListKeys(
  rows: readonly Row[],
  list: Handle,
  scroller: { readonly current: HTMLDivElement | null },
  focused: { value: string | null },
): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (!(event.target as HTMLElement).matches("article, [role=feed]")) return;
    const at = rows.findIndex((row) => row.key === (focused.value ?? rows.at(-1)?.key));
    const page = Math.max(1, Math.floor((scroller.current?.querySelectorAll("article").length ?? 2) / 2));
    const steps: Record<string, number> = {
      ArrowUp: at - 1,
      ArrowDown: at + 1,
      PageUp: at - page,
      PageDown: at + page,
      Home: 0,
      End: rows.length - 1,
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const direction = step < at ? -1 : 1;
    let next = Math.min(rows.length - 1, Math.max(0, step));
    while (rows[next] && rows[next]?.type !== "message") next += direction;
    const row = rows[next];
    if (!row) return;
    focused.value = row.key;
    list.current?.scrollToIndex(next, { align: "nearest" });
    requestAnimationFrame(() => {
      scroller.current
        ?.querySelector<HTMLElement>(`[data-key="${CSS.escape(row.key)}"]`)
        ?.focus({ preventScroll: true });
    });
  };
}

function Empty() {
  return (
    <div class={c.empty}>
      <Icon name="emoji" size={40} />
      <p>{s.sayHello}</p>
      <p>{s.sayHelloHint}</p>
    </div>
  );
}

const SKELETON_ROWS = 6;

function Loading({ conversation }: { conversation: Conversation }) {
  return (
    <div class={c.skeleton} role="status" aria-busy="true" aria-label={s.loading}>
      {conversation.trouble.value === "unreachable" && <p>{s.unreachable}</p>}
      {Array.from({ length: SKELETON_ROWS }, (_, at) => (
        <span key={at} />
      ))}
    </div>
  );
}

function ToLatest({ conversation, isAway }: { conversation: Conversation; isAway: boolean }) {
  const { live } = useApp();
  live.watch("unread", conversation.chat.chatId);
  if (!isAway || !conversation.window.value) return null;
  const { unread } = conversation.chat;
  const name = unread > 0 ? s.jumpToLatestNew(unread) : s.jumpToLatest;
  return (
    <button
      type="button"
      class={c.toLatest}
      aria-label={name}
      title={name}
      onClick={() => void conversation.jumpToLatest()}
    >
      <Icon name="down" />
      {unread > 0 && <span class={c.count}>{unread}</span>}
    </button>
  );
}

/** What arrives is said once, as text. What is only mounted by scrolling is not. */
function News({ rows, isAtEnd, head }: { rows: readonly Row[]; isAtEnd: boolean; head: number }) {
  const { people } = useApp();
  const said = useSignal<readonly { key: string; text: string }[]>([]);
  const upTo = useRef<number | null>(null);
  const end = useComputed(() => said.value);
  useEffect(() => {
    // What the log had before is no news, however the person comes to see it.
    const known = upTo.current;
    const last = rows.slice(-ANNOUNCED_MAX).map((row) => row.entry.sequence);
    upTo.current = Math.max(known ?? 0, head, ...last);
    if (!isAtEnd || known === null || document.activeElement?.matches("textarea:not(:placeholder-shown)"))
      return;
    const news = rows
      .slice(-ANNOUNCED_MAX)
      .filter((row) => row.type === "message" && !row.isOwn && row.entry.sequence > known)
      .map((row) => ({
        key: row.key,
        text: `${plainName(people.name(row.entry.sender_id))}: ${row.entry.content.slice(0, ANNOUNCED_CHARS_MAX)}`,
      }));
    if (news.length > 0) said.value = [...said.value, ...news].slice(-ANNOUNCED_MAX);
  }, [rows, isAtEnd]);
  return (
    <div role="log" aria-label={s.newMessages} aria-live="polite" class="sr">
      {end.value.map(({ key, text }) => (
        <p key={key}>{text}</p>
      ))}
    </div>
  );
}
