/** What a page says when something is not as it should be. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { message, online, openChat, type Somebody, signIn, until, World, write } from "./world.js";

let world: World;
let ada: Somebody;
let ben: Somebody;
let group: string;
beforeAll(async () => {
  world = await World.open();
  ada = await world.server.person("ada", "Ada");
  ben = await world.server.person("ben", "Ben");
  group = await world.server.chat(ada, [ben], "Garden");
});
afterEach(() => world.leave());
afterAll(() => world.close());

test("a browser that keeps nothing says so, and the chat works", async () => {
  const page = await world.page();
  await page.addInitScript(() => {
    Object.defineProperty(window, "indexedDB", { value: undefined });
  });
  await page.reload();
  await page.getByRole("textbox", { name: "Username" }).fill("ada");
  await page.getByLabel("Password", { exact: true }).fill("a long password");
  await page.getByRole("button", { name: "Sign in" }).click();
  await online(page);
  expect(await page.getByRole("alert", { name: "Storage" }).textContent()).toContain("keeps nothing");
  await openChat(page, "Garden");
  await write(page, "from memory");
  await until(
    () => message(page, "from memory").getAttribute("data-status"),
    (status) => status === "sent" || status === "delivered",
  );
});

test("where only admins write, others are told", async () => {
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { announcement_only: true });
  const page = await world.signedIn(ben);
  await openChat(page, "Garden");
  await page.getByText("Only admins write here.").waitFor();
  expect(await page.getByRole("textbox", { name: "Message", exact: true }).count()).toBe(0);
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { announcement_only: false });
  await page.getByRole("textbox", { name: "Message", exact: true }).waitFor();
});

test("in slow mode the next message waits, and the page counts", async () => {
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { slow_mode_seconds: 60 });
  const page = await world.signedIn(ben);
  const told = page.waitForResponse((answer) => new URL(answer.url()).pathname === `/v1/chats/${group}`);
  await openChat(page, "Garden");
  await (await told).finished();
  await write(page, "slowly");
  await page.getByRole("status", { name: "Slow mode" }).waitFor();
  expect(await page.getByRole("button", { name: "Send" }).isDisabled()).toBe(true);
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { slow_mode_seconds: 0 });
});

test("who types is named", async () => {
  const [one, other] = [await world.signedIn(ada), await world.signedIn(ben)];
  await openChat(one, "Garden");
  await openChat(other, "Garden");
  const field = other.getByRole("textbox", { name: "Message", exact: true });
  await until(
    async () => {
      await field.press("m");
      return one.getByRole("status", { name: "Typing" }).textContent();
    },
    (text) => text?.includes("Ben is typing") ?? false,
  );
});

test("who is removed from a chat is told, and what waits for nobody is not lost", async () => {
  const chat = await world.server.chat(ada, [ben], "Attic");
  const page = await world.signedIn(ben);
  await openChat(page, "Attic");
  await world.server.call(ada.token, "DELETE", `/v1/chats/${chat}/members/${ben.userId}`);
  await page.getByText("You left this chat.").first().waitFor();
});

test("a page that is older than the server offers to be loaded again", async () => {
  const page = await world.page();
  await page.route(
    (url) => url.pathname === "/",
    async (route) => {
      if (route.request().isNavigationRequest()) return route.continue();
      const answer = await route.fetch();
      const body = (await answer.text()).replace(/assets\/index-/g, "assets/index-newer-");
      return route.fulfill({ response: answer, body });
    },
  );
  await page.getByRole("textbox", { name: "Username" }).fill("ada");
  await page.getByLabel("Password", { exact: true }).fill("a long password");
  await page.getByRole("button", { name: "Sign in" }).click();
  await online(page);
  await page.getByRole("button", { name: "Reload to update" }).waitFor();
});

test("an invitation is shown, and accepted", async () => {
  await world.server.call(ben.token, "PATCH", "/v1/me", { who_may_add: "nobody" });
  const page = await world.signedIn(ben);
  await world.server.chat(ada, [ben], "Cellar");
  await page.getByRole("button", { name: "Invitations, 1" }).click();
  await page.getByRole("button", { name: "Accept Cellar" }).click();
  await page.getByRole("heading", { level: 1, name: "Cellar" }).waitFor();
});

test("a storage that fails is told, and what is written is sent from memory", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await page.evaluate(() => {
    IDBDatabase.prototype.transaction = () => {
      throw new DOMException("the connection is lost", "UnknownError");
    };
    IDBFactory.prototype.open = () => {
      throw new DOMException("the connection is lost", "UnknownError");
    };
  });
  await write(page, "with a broken disk");
  await page
    .getByRole("alert", { name: "Storage" })
    .getByText(/storage has failed/)
    .waitFor();
  await until(
    () => message(page, "with a broken disk").getAttribute("data-status"),
    (status) => status === "sent" || status === "delivered",
  );
});

test("a device that is removed is signed out in every tab", async () => {
  const cleo = await world.server.person("cleo", "Cleo");
  const one = await world.signedIn(cleo);
  const other = await one.context().newPage();
  await other.goto(world.address);
  await online(other);
  const { devices } = await world.server.call<{ devices: { device_id: string; current: boolean }[] }>(
    cleo.token,
    "GET",
    "/v1/devices",
  );
  const browser = devices.find(({ current }) => !current);
  await world.server.call(cleo.token, "DELETE", `/v1/devices/${browser?.device_id}`);
  for (const page of [one, other]) await page.getByRole("heading", { name: /^Sign in to / }).waitFor();
  await until(
    () => one.evaluate(async () => (await indexedDB.databases()).length),
    (left) => left === 0,
  );
});

test("what is not what the server has is told, and read again", async () => {
  const page = await world.page();
  let isLying = false;
  await page.routeWebSocket(/./, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((frame) => {
      const text = String(frame);
      if (!isLying || !text.includes('"log_hash":"')) return socket.send(frame);
      // One page whose hash is of another log.
      isLying = false;
      return socket.send(
        text.replace(/"log_hash":"1:(.)/, (_, first) => `"log_hash":"1:${first === "a" ? "b" : "a"}`),
      );
    });
  });
  await world.server.say(ben, group, "the first of all");
  await signIn(page, "ada");
  await openChat(page, "Garden");
  await page.getByRole("button", { name: "Details" }).click();
  const proof = page.getByRole("status", { name: "Completeness" });
  await until(
    () => proof.getAttribute("data-state"),
    (state) => state === "proven",
  );
  isLying = true;
  await world.server.say(ben, group, "is this the same log?");
  await page.getByRole("alert").getByText("What this device has is not what the server has.").waitFor();
  await message(page, "is this the same log?").waitFor();
  await until(
    () => proof.getAttribute("data-state"),
    (state) => state === "proven" || state === "complete",
  );
});

test("a chat that the server has restored is read again, and says so", async () => {
  await world.server.say(ben, group, "before the accident");
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await message(page, "before the accident").waitFor();
  const restore = await world.server.backup();
  await world.server.say(ben, group, "lost by the accident");
  await message(page, "lost by the accident").waitFor();
  await restore();
  await page.getByText("The server restored this chat; reading it again.").waitFor();
  await message(page, "lost by the accident").waitFor({ state: "detached" });
  await message(page, "before the accident").waitFor();
});
