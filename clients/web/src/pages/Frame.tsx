/** The signed-in page: the list, the conversation, the details; and what is said of the connection. */

import { useSignal } from "@preact/signals";
import { useLater } from "parley-ui/later.js";
import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Conversation } from "../app/conversation.js";
import { listen } from "../app/keyboard.js";
import { type ChatRoute, route } from "../app/route.js";
import { type App, app, useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { ChatList } from "./ChatList.js";
import { ConnectionStatus, StorageAlert, Update } from "./Connection.js";
import { ConversationPage } from "./ConversationPage.js";
import c from "./Frame.module.css";
import { hasDetails, panel, toLatest } from "./panels.js";

export function Frame() {
  if (!app.value) return null;
  return <SignedIn app={app.value} />;
}

function SignedIn({ app: opened }: { app: App }) {
  const at = route.value;
  const hasMain = at.page !== "chats";
  useTitle();
  useEffect(
    () =>
      listen({
        switchChat: () => {
          panel.value = { shown: "switch" };
        },
        search: () => {
          panel.value = { shown: "search", chatId: at.page === "chat" ? at.chatId : null };
        },
        shortcuts: () => {
          panel.value = { shown: "shortcuts" };
        },
        details: () => {
          hasDetails.value = !hasDetails.value;
        },
        leave: () => {
          if (hasDetails.value) hasDetails.value = false;
          else if (at.page === "chat") toLatest.value += 1;
          else return false;
          return true;
        },
      }),
    [at],
  );
  return (
    <div class={`${c.frame} ${hasMain ? c.hasMain : ""}`}>
      <StorageAlert />
      <nav class={c.chats} aria-label={s.chats}>
        <ChatList />
      </nav>
      <Main app={opened} />
      <ConnectionStatus />
      <Update />
      <Panel />
    </div>
  );
}

function Main({ app: opened }: { app: App }) {
  const at = route.value;
  switch (at.page) {
    case "chat":
      return <OneChat key={at.chatId} app={opened} place={at} />;
    case "settings":
      return <Later load={loadSettings} />;
    case "invitations":
    case "contacts":
    case "blocked":
      return <Later load={loadLists} />;
    default:
      return (
        <main class={c.main}>
          <Nothing />
        </main>
      );
  }
}

const loadLists = () => import("./Lists.js");
const loadSettings = () => import("./Settings.js");

/** A page of a chunk of its own. */
function Later({ load }: { load: () => Promise<{ default: ComponentType }> }) {
  const Page = useLater(load);
  return Page ? <Page /> : <main class={c.main} aria-busy="true" />;
}

/** The chat of the address, for as long as it is that one. */
function OneChat({ app: opened, place }: { app: App; place: ChatRoute }) {
  const conversation = useSignal<Conversation | null>(null);
  const opening = useRef<ChatRoute | null>(null);
  const { chatId } = place;
  useEffect(() => {
    const next = new Conversation(opened, chatId);
    conversation.value = next;
    opening.current = place;
    void next.open(place.at);
    return () => next.close();
  }, [opened, chatId]);
  useEffect(() => {
    // The same place again is another wish to see it.
    if (place !== opening.current && place.at !== null) void conversation.value?.jump(place.at);
  }, [place]);
  if (!conversation.value) return <main class={c.main} />;
  return <ConversationPage conversation={conversation.value} />;
}

/** What is over the page: the search, the switch, the keys. */
function Panel() {
  const now = panel.value;
  // A dialog tells that it is closed a moment later: another one may be wanted by then.
  const close = () => {
    if (panel.value === now) panel.value = null;
  };
  const SearchDialog = useLater(now?.shown === "search" ? loadSearch : null);
  const SwitchDialog = useLater(now?.shown === "switch" ? loadSwitch : null);
  const ShortcutsDialog = useLater(now?.shown === "shortcuts" ? loadShortcuts : null);
  if (now?.shown === "search" && SearchDialog) {
    return <SearchDialog chatId={now.chatId} query={now.query ?? ""} onClose={close} />;
  }
  if (now?.shown === "switch" && SwitchDialog) return <SwitchDialog onClose={close} />;
  if (now?.shown === "shortcuts" && ShortcutsDialog) return <ShortcutsDialog onClose={close} />;
  return null;
}

const loadSearch = () => import("./Search.js");
const loadSwitch = () => import("./QuickSwitch.js");
const loadShortcuts = () => import("./Shortcuts.js");

function Nothing() {
  return (
    <div class={c.nothing}>
      <img src="/assets/icon.svg" alt="" width="56" height="56" />
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
