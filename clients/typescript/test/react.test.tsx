// @vitest-environment happy-dom
/** Hooks in a page of React: what they show follows the client. */

import type { ReactNode } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Chat } from "../src/chat.js";
import { type Client, connect } from "../src/client.js";
import { useChatWindow, useConnection, useMembers, useTyping, useUnread, useUnsent } from "../src/react.js";
import { VirtualServer } from "../src/testing.js";

let server: VirtualServer;
let me: Client;
let chat: Chat;
let root: Root;
let page: HTMLElement;

beforeEach(async () => {
  server = new VirtualServer();
  const token = server.addPerson("ada");
  server.addPerson("ben");
  const chatId = server.addChat(["ada", "ben"]);
  me = await connect(server.url, token, { deviceId: "laptop", platform: server.platform() });
  chat = me.chat(chatId);
  page = document.body.appendChild(document.createElement("main"));
  root = createRoot(page);
});

afterEach(async () => {
  root.unmount();
  await me.close();
});

const shows = (text: string) => vi.waitFor(() => expect(page.textContent).toBe(text), { timeout: 10_000 });
const show = (node: ReactNode) => root.render(node);

function Messages({ around }: { around?: number }) {
  const shown = useChatWindow(chat, around === undefined ? {} : { around, size: 2 });
  return <p>{shown ? shown.messages.map(({ entry }) => entry.content).join(" ") : "loading"}</p>;
}

test("a window shows what arrives", async () => {
  server.say("ben", chat.chatId, "tea");
  show(<Messages />);
  await shows("tea");
  server.say("ben", chat.chatId, "milk");
  await shows("tea milk");
});

test("a window around another position is another window", async () => {
  for (const text of ["one", "two", "three", "four"]) server.say("ben", chat.chatId, text);
  show(<Messages around={2} />);
  await shows("one two");
  show(<Messages around={4} />);
  await shows("three four");
});

test("a window that could not be opened offline is there with the connection", async () => {
  server.say("ben", chat.chatId, "tea");
  server.cut({ isDown: true });
  show(<Messages />);
  await shows("loading");
  server.up();
  await shows("tea");
});

test("the connection, unread messages, what waits and who types are shown as they change", async () => {
  function Live() {
    const { isOnline } = useConnection(me);
    const [unread, unsent, typing] = [useUnread(chat), useUnsent(chat), useTyping(chat)];
    return <p>{[isOnline, unread, unsent.length, typing.length].join(" ")}</p>;
  }
  show(<Live />);
  await shows("true 0 0 0");
  server.say("ben", chat.chatId, "tea");
  await shows("true 1 0 0");
  server.cut({ isDown: true });
  await shows("false 1 0 0");
  chat.send("milk");
  await shows("false 1 1 0");
  server.up();
  await shows("true 1 0 0");
});

test("members are there while a component shows them", async () => {
  const Members = () => (
    <p>
      {useMembers(chat)
        .map((member) => member.username)
        .join(" ")}
    </p>
  );
  show(<Members />);
  await shows("ada ben");
  expect(chat.isOpen).toBe(true);
  show(<p>none</p>);
  await shows("none");
  expect(chat.isOpen).toBe(false);
});
