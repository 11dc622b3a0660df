/** What a page says when something is not as it should be. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { message, online, openChat, type Somebody, until, World, write } from "./world.js";

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
