/** One message: who, what, when, how far it has come, and what can be done to it. */

import { useComputed, useSignal } from "@preact/signals";
import type { Entry, MessageStatus, ReactionCount, RepliedMessage } from "parley-chat";
import { Avatar, Button, IconButton, nameClass } from "parley-ui/controls.js";
import { Icon, type IconName } from "parley-ui/Icon.js";
import { Menu, type Place } from "parley-ui/Menu.js";
import { clockTime, dayTitle, wholeTime } from "parley-ui/time.js";
import { createContext } from "preact";
import { memo } from "preact/compat";
import { useContext } from "preact/hooks";
import type { EventRow, MessageRow, Row } from "../app/rows.js";
import { useApp } from "../app/state.js";
import { eventText, lineOf } from "../app/summary.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import { Text } from "../text/Text.js";
import { Attachments } from "./Attachments.js";
import c from "./Message.module.css";
import type { Actions } from "./messageActions.js";

export const ActionsContext = createContext<Actions | null>(null);

const NAME_CHARS = 80;
const QUOTE_CHARS = 160;
const LONG_CHARS = 3_000;
/** Times so far apart are both shown. */
const APART_MS = 60_000;
const PLAIN = new Set(["text/plain", "text/markdown"]);

type ItemProps = { row: MessageRow; isMarked: boolean; isFocusable: boolean };

export const MessageItem = memo(function MessageItem({ row, isMarked, isFocusable }: ItemProps) {
  const { people, chats } = useApp();
  const actions = useContext(ActionsContext) as Actions;
  const isNear = useComputed(() => actions.near.value === row.key);
  const menu = useSignal<Place | null>(null);
  const near = (isHere: boolean) => {
    if (isHere) actions.near.value = row.key;
    else if (actions.near.value === row.key) actions.near.value = null;
  };
  const { entry } = row;
  const isGroup = chats.rows.value.get(entry.chat_id)?.type !== "direct";
  const name = plainName(people.name(entry.sender_id));
  const isDeleted = entry.deleted === true;
  const said = isDeleted ? s.deletedMessage : lineOf(entry, people);
  const isStored = entry.message_id !== "";
  return (
    <article
      class={`${c.message} ${row.isOwn ? c.own : ""} ${row.isNext ? c.next : ""}`}
      aria-label={`${name}: ${said.slice(0, NAME_CHARS)}`}
      aria-posinset={entry.sequence || undefined}
      aria-setsize={isStored ? (actions.conversation.chat.head ?? -1) : undefined}
      tabIndex={isFocusable ? 0 : -1}
      data-key={row.key}
      data-sequence={entry.sequence || undefined}
      data-message-id={entry.message_id || undefined}
      data-client-message-id={entry.client_message_id ?? undefined}
      data-status={row.status}
      data-deleted={isDeleted}
      onMouseEnter={() => near(true)}
      onMouseLeave={() => near(false)}
      onFocusIn={() => near(true)}
      onFocusOut={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) near(false);
      }}
      onKeyDown={(event) => event.target === event.currentTarget && byKey(event, actions, row)}
      onContextMenu={(event) => {
        if (
          !isStored ||
          getSelection()?.toString() ||
          (event.target as HTMLElement).closest("a, img, textarea")
        )
          return;
        event.preventDefault();
        menu.value = { x: event.clientX, y: event.clientY };
      }}
    >
      <Before row={row} />
      <div class={`${c.line} ${isMarked ? c.marked : ""}`}>
        {isGroup && !row.isOwn && (
          <span class={c.face}>{!row.hasNext && <Avatar id={entry.sender_id} name={name} size={32} />}</span>
        )}
        <div class={c.column}>
          <div class={`${c.bubble} ${isDeleted ? c.deleted : ""}`}>
            {isGroup && !row.isOwn && !row.isNext && (
              <bdi class={`${c.name} ${nameClass(entry.sender_id)}`}>{name}</bdi>
            )}
            {entry.reply_to && !isDeleted && <Quote messageId={entry.reply_to} replied={row.replied} />}
            <Body row={row} isDeleted={isDeleted} />
          </div>
          {row.reactions.length > 0 && <Reactions entry={entry} reactions={row.reactions} />}
          {row.status === "failed" && <Failed row={row} />}
          {isStored && (isNear.value || menu.value) && (
            <Toolbar
              entry={entry}
              onMenu={(place) => {
                menu.value = place;
              }}
            />
          )}
        </div>
      </div>
      {menu.value && (
        <Menu
          name={s.messageActions}
          items={actions.items(entry)}
          place={menu.value}
          onClose={() => {
            menu.value = null;
          }}
        />
      )}
    </article>
  );
}, isSameItem);

function isSameItem(one: ItemProps, other: ItemProps): boolean {
  const [before, after] = [one.row, other.row];
  return (
    one.isMarked === other.isMarked &&
    one.isFocusable === other.isFocusable &&
    before.entry === after.entry &&
    before.status === after.status &&
    before.sending === after.sending &&
    before.replied === after.replied &&
    before.day === after.day &&
    before.isFirstUnread === after.isFirstUnread &&
    before.isNext === after.isNext &&
    before.hasNext === after.hasNext &&
    sameReactions(before.reactions, after.reactions)
  );
}

const sameReactions = (one: readonly ReactionCount[], other: readonly ReactionCount[]) =>
  one.length === other.length &&
  one.every(
    (reaction, at) =>
      reaction.reaction === other[at]?.reaction && `${reaction.userIds}` === `${other[at].userIds}`,
  );

/** What stands before a row: its day, and where the unread messages begin. */
export function Before({ row, isBare = false }: { row: Row; isBare?: boolean }) {
  // Only what is within an article may have a role: a feed has articles, and nothing else.
  const named = (name: string): object => (isBare ? {} : { role: "separator", "aria-label": name });
  return (
    <>
      {row.day !== null && (
        <div {...named(dayTitle(row.day))} class={c.day}>
          <span>{dayTitle(row.day)}</span>
        </div>
      )}
      {row.isFirstUnread && (
        <div {...named(s.newMessages)} class={c.unread}>
          <span>{s.newMessages}</span>
        </div>
      )}
    </>
  );
}

export function EventLine({ row }: { row: EventRow }) {
  const { people } = useApp();
  return (
    <>
      <Before row={row} isBare />
      <div class={c.event} data-sequence={row.entry.sequence}>
        {eventText(row.entry, { name: (userId) => plainName(people.name(userId)) })}
      </div>
    </>
  );
}

function Body({ row, isDeleted }: { row: MessageRow; isDeleted: boolean }) {
  const { people, person } = useApp();
  const isWhole = useSignal(false);
  const { entry } = row;
  const foot = <Foot row={row} />;
  if (isDeleted) {
    return (
      <>
        <p>{s.deletedMessage}</p>
        {foot}
      </>
    );
  }
  const mentioned = (entry.mentions ?? []).map((userId) => people.find(userId)?.username ?? "");
  const isLong = entry.content.length > LONG_CHARS && !isWhole.value;
  const text = isLong ? `${entry.content.slice(0, LONG_CHARS)}…` : entry.content;
  return (
    <>
      <Attachments entry={entry} />
      {!PLAIN.has(entry.content_type) && <p class={c.type}>{s.contentOf(entry.content_type)}</p>}
      {text && (
        <Text
          text={text}
          mentioned={mentioned}
          own={person.username}
          {...(!isLong && { foot, footWidth: footWidth(row) })}
        />
      )}
      {isLong && (
        <Button
          look="quiet"
          onClick={() => {
            isWhole.value = true;
          }}
        >
          {s.showMore}
        </Button>
      )}
      {(!text || isLong) && foot}
    </>
  );
}

const TICK_PIXELS = 20;

/** About how wide the foot of a message is: digits are the widest of its letters. */
function footWidth(row: MessageRow): string {
  const said = [clockTime(row.at), row.entry.edited_at ? s.edited : "", writtenAt(row) ?? ""].join(" ");
  return `calc(${said.trim().length}ch + ${row.isOwn ? TICK_PIXELS : 0}px)`;
}

/** When it was written, if that was long before it was stored. */
function writtenAt({ entry, at }: MessageRow): string | null {
  const written = entry.display_time ? Date.parse(entry.display_time) : at;
  return Math.abs(written - at) > APART_MS && !entry.deleted ? `${s.writtenAt(clockTime(written))} · ` : null;
}

function Foot({ row }: { row: MessageRow }) {
  const { entry } = row;
  return (
    <span class={c.foot}>
      {writtenAt(row)}
      {entry.edited_at && !entry.deleted && <span>{s.edited}</span>}
      <time dateTime={entry.created_at} title={wholeTime(row.at)}>
        {clockTime(row.at)}
      </time>
      {row.isOwn && <Tick status={row.status} />}
    </span>
  );
}

const TICKS: Record<MessageStatus, IconName> = {
  keeping: "clock",
  queued: "clock",
  sending: "clock",
  sent: "tick",
  delivered: "ticks",
  read: "ticks",
  failed: "warning",
};

function Tick({ status }: { status: MessageStatus }) {
  return (
    <span
      role="img"
      aria-label={s.ticks[status]}
      title={s.ticks[status]}
      class={`${c.tick} ${c[status] ?? ""}`}
    >
      <Icon name={TICKS[status]} size={16} />
    </span>
  );
}

type QuoteProps = { messageId: string; replied: RepliedMessage | null };

function Quote({ messageId, replied }: QuoteProps) {
  const { people } = useApp();
  const { conversation } = useContext(ActionsContext) as Actions;
  const found = replied ? null : conversation.quoted(messageId).value;
  const senderId = replied?.sender_id ?? found?.sender_id;
  const name = senderId ? plainName(people.name(senderId)) : s.original;
  let text = "…";
  if (replied) text = replied.deleted ? s.deletedMessage : replied.excerpt || s.file;
  else if (found) text = lineOf(found, people).slice(0, QUOTE_CHARS);
  return (
    <button type="button" class={c.quote} onClick={() => void conversation.jump(messageId)}>
      <span class="sr">{s.inReplyToWord} </span>
      <bdi class={`${c.quoteName} ${senderId ? nameClass(senderId) : ""}`}>{name}</bdi>
      <span class="sr">: </span>
      <span class={c.quoteText} dir="auto">
        {text}
      </span>
    </button>
  );
}

function Reactions({ entry, reactions }: { entry: Entry; reactions: readonly ReactionCount[] }) {
  const { person, people } = useApp();
  const actions = useContext(ActionsContext) as Actions;
  return (
    <div class={c.reactions}>
      {reactions.map(({ reaction, count, userIds }) => {
        const isMine = userIds.includes(person.userId);
        return (
          <button
            key={reaction}
            type="button"
            class={c.reaction}
            aria-label={s.reaction(reaction, count)}
            aria-pressed={isMine}
            title={userIds.map((userId) => plainName(people.name(userId))).join(", ")}
            onClick={() => actions.toggle(entry, reaction, !isMine)}
          >
            <span>{reaction}</span>
            <span>{count}</span>
          </button>
        );
      })}
    </div>
  );
}

function Failed({ row }: { row: MessageRow }) {
  const actions = useContext(ActionsContext) as Actions;
  const { sending } = row;
  if (!sending) return null;
  return (
    <div class={c.failedBar}>
      <span>{s.notSentBecause(sending.refusal?.reason ?? "")}</span>
      <Button onClick={() => void actions.tryAgain(sending)}>{s.tryAgain}</Button>
      <Button onClick={() => void actions.conversation.writeAgain(sending)}>{s.edit}</Button>
      <Button onClick={() => void actions.discard(sending)}>{s.discard}</Button>
    </div>
  );
}

function Toolbar({ entry, onMenu }: { entry: Entry; onMenu: (place: Place) => void }) {
  const actions = useContext(ActionsContext) as Actions;
  return (
    <div role="toolbar" aria-label={s.messageActions} class={c.toolbar}>
      {!entry.deleted && (
        <>
          <IconButton icon="emoji" size={18} name={s.react} onClick={() => actions.react(entry)} />
          <IconButton icon="reply" size={18} name={s.reply} onClick={() => actions.reply(entry)} />
        </>
      )}
      <IconButton
        icon="more"
        size={18}
        name={s.more}
        aria-haspopup="menu"
        onClick={(event) => {
          const { left, bottom } = event.currentTarget.getBoundingClientRect();
          onMenu({ x: left, y: bottom });
        }}
      />
    </div>
  );
}

/** Keys of the message that has the focus. */
function byKey(event: KeyboardEvent, actions: Actions, { entry }: MessageRow): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const keys: Record<string, () => void> = {
    r: () => actions.reply(entry),
    e: () => actions.edit(entry),
    c: () => void actions.copyText(entry),
    "+": () => actions.react(entry),
    i: () => actions.info(entry),
    Delete: () => actions.askDelete(entry),
  };
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
}
