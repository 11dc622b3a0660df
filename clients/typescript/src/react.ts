/** Hooks: what a component shows of the client, kept up to date. Peer: React 18 or newer, or Preact by alias. */

import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import type { Chat } from "./chat.js";
import type { Client } from "./client.js";
import type { What } from "./core/events.js";
import type { Member } from "./core/members.js";
import type { Sending } from "./sending.js";
import type { ChatWindow, WindowOptions } from "./window.js";

/** What a hook reads, read again after each change of these kinds; of this chat, or of none. */
function useLive<Value>(
  client: Client,
  whats: readonly What[],
  chatId: string | null,
  read: () => Value,
): Value {
  const version = useRef(0);
  const subscribe = useCallback(
    (changed: () => void) => {
      const offs = whats.map((what) =>
        client.on(what, (update) => {
          if (chatId !== null && update.chatId !== undefined && update.chatId !== chatId) return;
          version.current += 1;
          changed();
        }),
      );
      return () => {
        for (const off of offs) off();
      };
    },
    [client, chatId, whats],
  );
  const seen = () => version.current;
  useSyncExternalStore(subscribe, seen, seen);
  return read();
}

export interface ConnectionState {
  readonly isOnline: boolean;
  readonly storage: Client["storage"];
  /** Why the client has ended, if it has: BadToken asks for another login. */
  readonly failure: Client["failure"];
}

/** Whether there is a connection, and whether what is written survives the page. */
export function useConnection(client: Client): ConnectionState {
  return useLive(client, CONNECTION, null, () => ({
    isOnline: client.isOnline,
    storage: client.storage,
    failure: client.failure,
  }));
}

/** How many messages of a chat are unread. */
export function useUnread(chat: Chat): number {
  return useLive(chat.client, UNREAD, chat.chatId, () => chat.unread);
}

/** The user ids of those who type. */
export function useTyping(chat: Chat): readonly string[] {
  return useLive(chat.client, TYPING, chat.chatId, () => chat.typing);
}

/** What of a chat is not stored yet, in the order in which it was sent. */
export function useUnsent(chat: Chat): readonly Sending[] {
  return useLive(chat.client, RECEIPTS, chat.chatId, () => chat.unsent);
}

/** The members of a chat, which is open for as long as the component is there. */
export function useMembers(chat: Chat): readonly Member[] {
  useEffect(() => {
    chat.open().catch(() => {});
    return () => chat.close();
  }, [chat]);
  return useLive(chat.client, MEMBERS, chat.chatId, () => [...chat.members.values()]);
}

/** A window of a chat, null until it is there. Another `around` opens another one. */
export function useChatWindow(chat: Chat, { around, size }: WindowOptions = {}): ChatWindow | null {
  const [shown, setShown] = useState<ChatWindow | null>(null);
  const [, setVersion] = useState(0);
  useEffect(() => {
    let isGone = false;
    let opened: ChatWindow | null = null;
    const options = { ...(around !== undefined && { around }), ...(size !== undefined && { size }) };
    let isOpening = false;
    const open = async () => {
      if (isOpening || opened) return;
      isOpening = true;
      const window = await chat.window(options).catch(() => null);
      isOpening = false;
      if (isGone) return window?.close();
      opened = window;
      window?.onChange(() => setVersion((version) => version + 1));
      setShown(window);
    };
    // One that could not be opened may be once there is a connection.
    const off = chat.client.on("connection", () => void open());
    void open();
    return () => {
      off();
      isGone = true;
      opened?.close();
      setShown(null);
    };
  }, [chat, around, size]);
  return shown;
}

const CONNECTION: readonly What[] = ["connection", "storage"];
const UNREAD: readonly What[] = ["unread"];
const TYPING: readonly What[] = ["typing"];
const RECEIPTS: readonly What[] = ["receipts"];
const MEMBERS: readonly What[] = ["members", "presence", "receipts"];
