/** One chat: its header, its messages, and the field to write in. */

import { useSignal } from "@preact/signals";
import { Avatar, IconButton } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Icon } from "parley-ui/Icon.js";
import { useLater } from "parley-ui/later.js";
import { listTime } from "parley-ui/time.js";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Conversation } from "../app/conversation.js";
import { hrefOf } from "../app/route.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import { Composer } from "./Composer.js";
import c from "./ConversationPage.module.css";
import { DialogOf, type Shown } from "./dialogs.js";
import frame from "./Frame.module.css";
import { ActionsContext } from "./Message.js";
import { MessageList } from "./MessageList.js";
import { Actions } from "./messageActions.js";
import { hasDetails, panel, toLatest } from "./panels.js";

export function ConversationPage({ conversation }: { conversation: Conversation }) {
  const shown = useSignal<Shown | null>(null);
  const { trouble, window: loaded } = conversation;
  const actions = useMemo(
    () =>
      new Actions(conversation, (next) => {
        shown.value = next;
      }),
    [conversation],
  );
  const DetailsPanel = useLater(hasDetails.value ? loadDetails : null);
  const leave = useRef(toLatest.value);
  useEffect(() => {
    if (leave.current !== toLatest.value) void conversation.jumpToLatest();
    leave.current = toLatest.value;
  }, [toLatest.value]);
  const isGone = trouble.value === "not_a_member" || trouble.value === "not_found";
  const Gone = useLater(isGone && !loaded.value ? loadGone : null);
  return (
    <ActionsContext.Provider value={actions}>
      <main class={frame.main}>
        <Header conversation={conversation} />
        <LogNotice conversation={conversation} />
        {isGone && !loaded.value ? (
          Gone && <Gone conversation={conversation} />
        ) : (
          <MessageList conversation={conversation} />
        )}
        <TypingLine conversation={conversation} />
        {!isGone && <Composer conversation={conversation} />}
        {isGone && loaded.value && <p class={c.closed}>{s.notMember}</p>}
        <DialogOf shown={shown} conversation={conversation} />
      </main>
      {DetailsPanel && (
        <DetailsPanel
          conversation={conversation}
          onClose={() => {
            hasDetails.value = false;
          }}
        />
      )}
    </ActionsContext.Provider>
  );
}

const loadGone = () => import("./Gone.js");
const loadDetails = () => import("./Details.js");

function Header({ conversation }: { conversation: Conversation }) {
  const { chats } = useApp();
  const { chatId } = conversation.chat;
  const row = chats.rows.value.get(chatId);
  const info = conversation.info.value;
  const isGroup = (row?.type ?? info?.type) === "group";
  const isGone = !row && !info && conversation.trouble.value !== null;
  const title = plainName(row ? chats.titleOf(chatId) : (info?.title ?? "")) || (info ? s.unnamed : "");
  return (
    <header class={c.header}>
      <a class={`${controls.icon} ${c.back}`} href={hrefOf.chats()} aria-label={s.back} title={s.back}>
        <Icon name="back" />
      </a>
      {!isGone && <Avatar id={row?.peerId ?? chatId} name={title} size={40} isGroup={isGroup} />}
      <div class={c.titles}>
        <h1>
          <bdi>{isGone ? s.chat : title}</bdi>
        </h1>
        <Under conversation={conversation} peerId={row?.peerId ?? null} isGroup={isGroup} />
      </div>
      <IconButton
        icon="search"
        name={s.searchTitle}
        onClick={() => {
          panel.value = { shown: "search", chatId };
        }}
      />
      <IconButton
        icon="info"
        name={s.details}
        aria-expanded={hasDetails.value}
        onClick={() => {
          hasDetails.value = !hasDetails.value;
        }}
      />
    </header>
  );
}

/** Who is there, or how many are. */
function Under({
  conversation,
  peerId,
  isGroup,
}: {
  conversation: Conversation;
  peerId: string | null;
  isGroup: boolean;
}) {
  const { live } = useApp();
  const { chat } = conversation;
  live.watch("presence");
  live.watch("members", chat.chatId);
  if (isGroup) {
    const count = chat.members.size || conversation.info.value?.member_count;
    const online = [...chat.members.values()].filter((member) => member.status === "online").length;
    if (!count) return <p class={c.under} />;
    return (
      <p class={c.under}>{online > 1 ? `${s.members(count)}, ${online} ${s.online}` : s.members(count)}</p>
    );
  }
  const peer = peerId ? chat.members.get(peerId) : undefined;
  if (peer?.status === "online") return <p class={`${c.under} ${c.isOnline}`}>{s.online}</p>;
  const seen = peer?.lastSeen && peer.lastSeen !== "unavailable" ? Date.parse(peer.lastSeen) : 0;
  return <p class={c.under}>{seen ? s.lastSeen(listTime(seen)) : ""}</p>;
}

function TypingLine({ conversation }: { conversation: Conversation }) {
  const { live, people } = useApp();
  live.watch("typing", conversation.chat.chatId);
  const names = conversation.chat.typing.map((userId) => plainName(people.name(userId)));
  return (
    <div role="status" aria-label={s.typing} class={c.typing}>
      {names.length > 0 && (
        <>
          <span class={c.dots} aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
          {s.isTyping(names)}
        </>
      )}
    </div>
  );
}

/** The log is read again: it is another one, or this device had something else. */
function LogNotice({ conversation: { notice } }: { conversation: Conversation }) {
  if (notice.value === "differs") {
    return (
      <p role="alert" class={`${c.notice} ${c.differs}`}>
        <Icon name="warning" size={18} />
        {s.logDiffers}
      </p>
    );
  }
  return (
    <p role="status" class={notice.value ? c.notice : "sr"}>
      {notice.value ? s.logRebuilt : ""}
    </p>
  );
}
