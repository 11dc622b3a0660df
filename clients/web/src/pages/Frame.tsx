/** The signed-in page: the list, the conversation, the details; and what is said of the connection. */

import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Conversation } from "../app/conversation.js";
import { route } from "../app/route.js";
import { type App, app, useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { Icon } from "../ui/Icon.js";
import { ChatList } from "./ChatList.js";
import { ConnectionStatus, StorageAlert } from "./Connection.js";
import { ConversationPage } from "./ConversationPage.js";
import c from "./Frame.module.css";

export function Frame() {
  if (!app.value) return null;
  return <SignedIn app={app.value} />;
}

function SignedIn({ app: opened }: { app: App }) {
  const at = route.value;
  const hasMain = at.page !== "chats";
  useTitle();
  return (
    <div class={`${c.frame} ${hasMain ? c.hasMain : ""}`}>
      <StorageAlert />
      <nav class={c.chats} aria-label={s.chats}>
        <ChatList />
        <ConnectionStatus />
      </nav>
      <Main app={opened} />
    </div>
  );
}

function Main({ app: opened }: { app: App }) {
  const at = route.value;
  switch (at.page) {
    case "chat":
      return <OneChat key={at.chatId} app={opened} chatId={at.chatId} at={at.at} />;
    case "settings":
      return <Later load={loadSettings} />;
    default:
      return (
        <main class={c.main}>
          <Nothing />
        </main>
      );
  }
}

const loadSettings = () => import("./Settings.js");

/** A page of a chunk of its own. */
function Later({ load }: { load: () => Promise<{ default: ComponentType }> }) {
  const loaded = useSignal<ComponentType | null>(null);
  useEffect(() => {
    void load().then((chunk) => {
      loaded.value = chunk.default;
    });
  }, [load]);
  const Page = loaded.value;
  return Page ? <Page /> : <main class={c.main} aria-busy="true" />;
}

/** The chat of the address, for as long as it is that one. */
function OneChat({ app: opened, chatId, at }: { app: App; chatId: string; at: number | null }) {
  const conversation = useSignal<Conversation | null>(null);
  useEffect(() => {
    const next = new Conversation(opened, chatId);
    conversation.value = next;
    void next.open(at);
    return () => next.close();
  }, [opened, chatId]);
  useEffect(() => {
    if (at !== null && conversation.value) void conversation.value.jump(at);
  }, [at]);
  if (!conversation.value) return <main class={c.main} />;
  return <ConversationPage conversation={conversation.value} />;
}

function Nothing() {
  return (
    <div class={c.nothing}>
      <Icon name="mail" size={48} />
      <h1>{s.chooseChat}</h1>
      <p>{s.chooseChatHint}</p>
    </div>
  );
}

/** "(3) Tea · Parley": what is unread, and where the person is. */
function useTitle() {
  const { client, live, chats } = useApp();
  live.watch("unread");
  const at = route.value;
  const rows = [...chats.rows.value.keys()];
  const unread = rows.reduce(
    (sum, chatId) => sum + (client.chat(chatId).muted ? 0 : client.chat(chatId).unread),
    0,
  );
  const place = at.page === "chat" ? `${chats.titleOf(at.chatId)} – ${s.product}` : s.product;
  const title = unread > 0 ? `${unread} · ${place}` : place;
  useEffect(() => {
    document.title = title;
  }, [title]);
}
