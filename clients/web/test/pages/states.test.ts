/** The rarer states of a chat: what is said, and what can be done. */

import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { message, online, openChat, PASSWORD, type Somebody, until, World, write } from "./world.js";

let world: World;
let ada: Somebody;
let ben: Somebody;
let group: string;
let count = 0;

beforeAll(async () => {
  world = await World.open();
});
beforeEach(async () => {
  count += 1;
  ada = await world.server.person(`ada${count}`, "Ada");
  ben = await world.server.person(`ben${count}`, "Ben");
  group = await world.server.chat(ada, [ben], "Garden");
});
afterEach(() => world.leave());
afterAll(() => world.close());

interface Log {
  readonly entries: readonly { content: string; mentions?: string[] }[];
}
const log = () => world.server.call<Log>(ada.token, "GET", `/v1/chats/${group}/messages?after=0`);

test("people who have left keep their names, asked for together", async () => {
  const left = [];
  for (const name of ["Cleo", "Dai", "Eve"]) {
    const person = await world.server.person(`${name.toLowerCase()}${count}`, name);
    await world.server.call(ada.token, "POST", `/v1/chats/${group}/members`, { user_id: person.userId });
    await world.server.say(person, group, `I am ${name}`);
    left.push(person);
  }
  for (const person of left) {
    await world.server.call(ada.token, "DELETE", `/v1/chats/${group}/members/${person.userId}`);
  }
  const page = await world.page();
  const asked: string[] = [];
  page.on("request", (request) => {
    const { pathname } = new URL(request.url());
    if (pathname.startsWith("/v1/users")) asked.push(pathname);
  });
  await page.getByRole("textbox", { name: "Username" }).fill(ada.username);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
  await openChat(page, "Garden");
  for (const name of ["Cleo", "Dai", "Eve"]) {
    await until(
      () => message(page, `I am ${name}`).getAttribute("aria-label"),
      (label) => label === `${name}: I am ${name}`,
    );
  }
  expect(new Set(asked)).toEqual(new Set(["/v1/users"]));
  expect(asked.length).toBeLessThan(left.length);
});

test("a message that could not be sent is edited, and sent once", async () => {
  const page = await world.signedIn(ben);
  await openChat(page, "Garden");
  await page.context().setOffline(true);
  await world.server.kill();
  await write(page, "too late");
  await until(
    () => message(page, "too late").getAttribute("data-status"),
    (now) => now === "queued",
  );
  await world.server.start();
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { announcement_only: true });
  await page.context().setOffline(false);
  await until(
    () => message(page, "too late").getAttribute("data-status"),
    (now) => now === "failed",
  );
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { announcement_only: false });
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  await field.waitFor();
  await message(page, "too late").getByRole("button", { name: "Edit" }).click();
  await until(
    () => field.inputValue(),
    (text) => text === "too late",
  );
  await message(page, "too late").waitFor({ state: "detached" });
  await field.fill("in time");
  await field.press("Enter");
  await until(
    () => message(page, "in time").getAttribute("data-status"),
    (now) => now === "sent" || now === "delivered",
  );
  const said = (await log()).entries.map(({ content }) => content);
  expect(said.filter((text) => /too late|in time/.test(text))).toEqual(["in time"]);
});

test("a change that is refused is told, and given up", async () => {
  await world.server.say(ada, group, "first words");
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await message(page, "first words").hover();
  await page.getByRole("button", { name: "More", exact: true }).click();
  await page.getByRole("menuitem", { name: "Edit" }).click();
  await page.getByRole("group", { name: "Editing" }).waitFor();
  await page.context().setOffline(true);
  await world.server.kill();
  await write(page, "other words");
  await world.server.start();
  // The message is older than this by now.
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { edit_window_seconds: 1 });
  await page.context().setOffline(false);
  await page.getByText("Not done: this message is too old to be edited").waitFor();
  await message(page, "first words").waitFor();
  expect(await message(page, "other words").count()).toBe(0);
});

test("with somebody whose account is deleted there is nothing to write", async () => {
  await world.server.chat(ben, [ada]);
  const page = await world.signedIn(ada);
  await openChat(page, "Ben");
  await world.server.call(ben.token, "DELETE", "/v1/me", { password: PASSWORD });
  await page.reload();
  await page.getByText("This account was deleted").waitFor();
  expect(await page.getByRole("textbox", { name: "Message", exact: true }).count()).toBe(0);
});

test("to somebody who is blocked nothing is written", async () => {
  await world.server.chat(ben, [ada]);
  await world.server.call(ada.token, "PUT", `/v1/blocks/${ben.userId}`);
  const page = await world.signedIn(ada);
  await openChat(page, "Ben");
  await page.getByText("You have blocked Ben.").waitFor();
  expect(await page.getByRole("textbox", { name: "Message", exact: true }).count()).toBe(0);
});

test("an open chat is made, and joined by its link; a closed one is not", async () => {
  const page = await world.signedIn(ada);
  await page.getByRole("button", { name: "New chat" }).click();
  const dialog = page.getByRole("dialog", { name: "New chat" });
  await dialog.getByRole("textbox", { name: "Group name" }).fill("Open garden");
  await dialog.getByRole("switch", { name: /who has the link/ }).click();
  await dialog.getByRole("button", { name: "Start chat" }).click();
  await page.getByRole("heading", { level: 1, name: "Open garden" }).waitFor();
  const other = await world.signedIn(ben);
  const go = (hash: string) =>
    other.evaluate((to) => {
      location.hash = to;
    }, hash);
  await go(new URL(page.url()).hash);
  await other.getByRole("button", { name: "Join chat" }).click();
  await other.getByRole("heading", { level: 1, name: "Open garden" }).waitFor();
  await write(other, "I am in");
  await message(page, "I am in").waitFor();

  await go(`#/chat/${await world.server.chat(ada, [], "Closed")}`);
  await other.getByRole("button", { name: "Join chat" }).click();
  await other.getByText("This chat is not open").waitFor();
});

test("who wants to add somebody who decides alone is told that they were invited", async () => {
  await world.server.call(ben.token, "PATCH", "/v1/me", { who_may_add: "nobody" });
  await world.server.call(ada.token, "PUT", `/v1/contacts/${ben.userId}`);
  const page = await world.signedIn(ada);
  await page.getByRole("button", { name: "New chat" }).click();
  const dialog = page.getByRole("dialog", { name: "New chat" });
  await dialog.getByRole("list", { name: "Contacts" }).getByRole("button", { name: "Ben" }).click();
  await dialog.getByRole("textbox", { name: "Group name" }).fill("Cellar");
  await dialog.getByRole("button", { name: "Start chat" }).click();
  await page.getByText("Ben: they decide alone, and were invited.").waitFor();
});

test.each([
  ["simple", "read", "This chat tells whether somebody has read a message, and not who."],
  ["none", "delivered", "This chat does not say who has read a message."],
])("the story in a chat with %s receipts names no reader", async (mode, status, text) => {
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { read_receipts: mode });
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await write(page, "Who reads this?");
  await openChat(await world.signedIn(ben), "Garden");
  await until(
    () => message(page, "Who reads this?").getAttribute("data-status"),
    (now) => now === status,
  );
  await message(page, "Who reads this?").hover();
  await page.getByRole("button", { name: "More", exact: true }).click();
  await page.getByRole("menuitem", { name: "Message info" }).click();
  const dialog = page.getByRole("dialog", { name: "Message info" });
  await dialog.getByText(text).waitFor();
  expect(await dialog.getByText("Read by Ben").count()).toBe(0);
});

test("without the server the search finds what this device has, and says so", async () => {
  await world.server.say(ben, group, "the rhubarb needs shade");
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await message(page, "rhubarb").waitFor();
  await page.keyboard.press("Control+Shift+F");
  const search = page.getByRole("dialog", { name: "Search" });
  await search.waitFor();
  await world.server.kill();
  await page.locator('[role=status][data-state="offline"]').waitFor();
  await search.getByRole("searchbox").fill("RHUBARB shade");
  await search.getByText("Offline: only what this device has was searched.").waitFor();
  expect(await search.getByRole("list", { name: "Results" }).getByRole("button").count()).toBe(1);
  await search.getByRole("searchbox").fill("tomato");
  await search.getByText("Nothing found.").waitFor();
});

test("members that the page does not know yet are completed by the server", async () => {
  const page = await world.signedIn(ada);
  await page.route(
    (url) => url.pathname.endsWith("/members") && !url.searchParams.has("q"),
    (route) => route.abort(),
  );
  await openChat(page, "Garden");
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  await field.pressSequentially("Ask @be");
  await page.getByRole("listbox", { name: "Mentions" }).getByRole("option", { name: "Ben" }).waitFor();
  await field.press("Enter");
  await field.press("Enter");
  const { entries } = await until(log, (now) => now.entries.some(({ content }) => content.startsWith("Ask")));
  expect(entries.at(-1)?.mentions).toEqual([ben.userId]);
});

test("emoji are completed after a colon", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  await field.pressSequentially("Good :tom");
  const list = page.getByRole("listbox", { name: "Emoji" });
  await list.getByRole("option").first().waitFor();
  await field.press("Escape");
  await list.waitFor({ state: "detached" });
  await field.pressSequentially("a");
  await list.getByRole("option", { name: "tomato" }).waitFor();
  await field.press("Enter");
  await until(
    () => field.inputValue(),
    (text) => text === "Good 🍅 ",
  );
});

test("several messages are copied with their times and names", async () => {
  await world.server.say(ben, group, "Shall we plant beans?");
  await world.server.say(ada, group, "And peas");
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await message(page, "And peas").waitFor();
  await until(
    () => message(page, "beans").getAttribute("aria-label"),
    (label) => label?.startsWith("Ben") ?? false,
  );
  const copied = await page.evaluate(() => {
    const feed = document.querySelector('[role="feed"]') as HTMLElement;
    getSelection()?.selectAllChildren(feed);
    const clipboardData = new DataTransfer();
    const event = new ClipboardEvent("copy", { clipboardData, bubbles: true, cancelable: true });
    feed.querySelector("article")?.dispatchEvent(event);
    return clipboardData.getData("text/plain");
  });
  expect(copied).toMatch(/^\[\d\d:\d\d\] Ben: Shall we plant beans\?\n\[\d\d:\d\d\] Ada: And peas$/);
});

test("Escape leaves what is nearest: the answer, the details, then goes to the end", async () => {
  for (let at = 1; at <= 60; at += 1) await world.server.say(ben, group, `line ${at}`);
  const page = await world.signedIn(ada);
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/chat/${group}/5`);
  const line = page.locator('article[data-sequence="5"]');
  await line.waitFor();
  await page.getByRole("button", { name: "Details" }).click();
  const details = page.getByRole("complementary", { name: "Details" });
  await details.waitFor();
  await line.hover();
  await page.getByRole("button", { name: "Reply", exact: true }).click();
  const answering = page.getByRole("group", { name: "Replying to Ben" });
  await answering.waitFor();
  await page.keyboard.press("Escape");
  await answering.waitFor({ state: "detached" });
  expect(await details.count()).toBe(1);
  await page.keyboard.press("Escape");
  await details.waitFor({ state: "detached" });
  await page.keyboard.press("Escape");
  await message(page, "line 60").waitFor();
});

test("somebody who tries too often is told how long to wait", async () => {
  const page = await world.page();
  const refusal = { code: "rate_limited", reason: "too fast", temporary: true, retry_after_ms: 3000 };
  await page.route("**/v1/web/session", (route) => route.fulfill({ status: 429, json: refusal }));
  await page.getByRole("textbox", { name: "Username" }).fill(ada.username);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  const button = page.getByRole("button", { name: "Sign in" });
  await button.click();
  await page.getByText(/^Try again in \d seconds?\.$/).waitFor();
  expect(await button.isDisabled()).toBe(true);
  await until(
    () => button.isEnabled(),
    (isEnabled) => isEnabled,
  );
});

test("what this browser has can be cleared, and not be kept at all", async () => {
  await world.server.say(ben, group, "kept for a while");
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await message(page, "kept for a while").waitFor();
  const kept = () =>
    page.evaluate(async () => {
      const texts: string[] = [];
      for (const { name } of await indexedDB.databases()) {
        const db = await new Promise<IDBDatabase>((resolve) => {
          const opening = indexedDB.open(name ?? "");
          opening.onsuccess = () => resolve(opening.result);
        });
        const asking = db.transaction("entries").objectStore("entries").getAll();
        texts.push(
          await new Promise((resolve) => {
            asking.onsuccess = () => resolve(JSON.stringify(asking.result));
          }),
        );
        db.close();
      }
      return texts.join();
    });
  await until(kept, (texts) => texts.includes("kept for a while"));
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Clear messages" }).click();
  const question = page.getByRole("dialog", { name: "Clear messages?" });
  await question.getByRole("button", { name: "Clear", exact: true }).click();
  await page.getByText("Cleared.").waitFor();
  expect(await kept()).not.toContain("kept for a while");
  await page.getByRole("switch", { name: "Keep messages in this browser" }).click();
  await page.getByRole("alert", { name: "Storage" }).waitFor();
  await online(page);
  await openChat(page, "Garden");
  await message(page, "kept for a while").waitFor();
  expect(await kept()).toBe("");
});
