import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { message, openChat, type Somebody, until, World, write } from "./world.js";

let world: World;
let ada: Somebody;
let ben: Somebody;
let cleo: Somebody;
let group: string;
let count = 0;

beforeAll(async () => {
  world = await World.open();
});
beforeEach(async () => {
  count += 1;
  ada = await world.server.person(`ada${count}`, "Ada");
  ben = await world.server.person(`ben${count}`, "Ben");
  cleo = await world.server.person(`cleo${count}`, "Cleo");
  group = await world.server.chat(ada, [ben, cleo], "Garden");
});
afterEach(() => world.leave());
afterAll(() => world.close());

const status = (page: Page, text: string) => message(page, text).first().getAttribute("data-status");

async function act(page: Page, text: string, action: string): Promise<void> {
  await message(page, text).first().hover();
  await page.getByRole("button", { name: "More", exact: true }).click();
  await page.getByRole("menuitem", { name: action, exact: true }).click();
}

test("a message is edited, answered, reacted to and deleted, and the other one sees each", async () => {
  const [one, other] = [await world.signedIn(ada), await world.signedIn(ben)];
  await openChat(one, "Garden");
  await openChat(other, "Garden");
  await write(one, "Tomatos are red");
  await message(other, "Tomatos are red").waitFor();

  await act(one, "Tomatos are red", "Edit");
  await one.getByRole("group", { name: "Editing" }).waitFor();
  await write(one, "Tomatoes are red");
  await message(other, "Tomatoes are red").getByText("edited").waitFor();

  await act(other, "Tomatoes are red", "Reply");
  await other.getByRole("group", { name: "Replying to Ada" }).waitFor();
  await write(other, "And green before");
  const answer = message(one, "And green before");
  await answer.getByRole("button", { name: /^In reply to Ada\s?: Tomatoes are red/ }).waitFor();

  await act(one, "And green before", "React");
  await one.getByRole("dialog", { name: "Emoji" }).getByRole("button", { name: "👍", exact: true }).click();
  const reaction = message(other, "And green before").getByRole("button", { name: "👍, 1" });
  await reaction.waitFor();
  expect(await reaction.getAttribute("aria-pressed")).toBe("false");
  await reaction.click();
  await message(one, "And green before").getByRole("button", { name: "👍, 2" }).waitFor();

  await act(one, "Tomatoes are red", "Delete");
  await one.getByRole("dialog", { name: "Delete message?" }).getByRole("button", { name: "Delete" }).click();
  const gone = other.locator('article[data-deleted="true"]');
  await gone.waitFor();
  expect(await gone.textContent()).toContain("Message deleted");
});

test("an @ is completed, and the mentioned one sees that it is about them", async () => {
  const [one, other] = [await world.signedIn(ada), await world.signedIn(ben)];
  await openChat(one, "Garden");
  await openChat(other, "Garden");
  const field = one.getByRole("textbox", { name: "Message", exact: true });
  await one.getByRole("heading", { name: "Garden", level: 1 }).waitFor();
  await until(
    () => one.getByText("3 members").count(),
    (found) => found > 0,
  );
  await field.pressSequentially("Ask @be");
  await one.getByRole("listbox", { name: "Mentions" }).getByRole("option", { name: "Ben" }).waitFor();
  await field.press("Tab");
  expect(await field.inputValue()).toBe(`Ask @${ben.username} `);
  await field.press("Enter");
  await message(other, "Ask").getByText(`@${ben.username}`).waitFor();
  const { entries } = await world.server.call<{ entries: { mentions?: string[] }[] }>(
    ben.token,
    "GET",
    `/v1/chats/${group}/messages?after=0`,
  );
  expect(entries.at(-1)?.mentions).toEqual([ben.userId]);
});

test("what was written survives the page, with what it answers", async () => {
  const page = await world.signedIn(ada);
  await world.server.say(ben, group, "What shall we plant?");
  await openChat(page, "Garden");
  await act(page, "What shall we plant?", "Reply");
  await page.getByRole("textbox", { name: "Message", exact: true }).fill("Beans, I thi");
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("heading", { name: "Settings" }).waitFor();
  await openChat(page, "Garden");
  await until(
    () => page.getByRole("textbox", { name: "Message", exact: true }).inputValue(),
    (text) => text === "Beans, I thi",
  );
  await page.getByRole("group", { name: "Replying to Ben" }).waitFor();
});

test("what is written while the server is dead is sent once it is back, once, in order", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await world.server.kill();
  for (const text of ["one", "two", "three"]) await write(page, `offline ${text}`);
  await until(
    () => status(page, "offline three"),
    (now) => now === "queued",
  );
  expect(await page.getByRole("status", { name: "Connection" }).textContent()).toBe(
    "Offline. Messages wait here and are sent when you are back.",
  );
  expect(await message(page, "offline one").getByRole("img").getAttribute("aria-label")).toBe(
    "Waiting to be sent",
  );
  await world.server.start();
  await until(
    () => status(page, "offline three"),
    (now) => now === "sent" || now === "delivered",
  );
  const { entries } = await world.server.call<{ entries: { content: string }[] }>(
    ben.token,
    "GET",
    `/v1/chats/${group}/messages?after=0`,
  );
  expect(entries.map(({ content }) => content).filter((text) => text.startsWith("offline"))).toEqual([
    "offline one",
    "offline two",
    "offline three",
  ]);
  const shown = await page.getByRole("feed").getByRole("article").allTextContents();
  expect(shown.filter((text) => text.includes("offline"))).toHaveLength(3);
});

test("a message that was refused for good is tried again, and discarded", async () => {
  const page = await world.signedIn(ben);
  await openChat(page, "Garden");
  await message(page, "nothing").waitFor({ state: "detached" });
  await page.context().setOffline(true);
  await world.server.kill();
  await write(page, "too late");
  await until(
    () => status(page, "too late"),
    (now) => now === "queued",
  );
  await world.server.start();
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { announcement_only: true });
  await page.context().setOffline(false);
  await until(
    () => status(page, "too late"),
    (now) => now === "failed",
  );
  expect(await message(page, "too late").getByRole("img").getAttribute("aria-label")).toBe("Not sent");
  await world.server.call(ada.token, "PATCH", `/v1/chats/${group}`, { announcement_only: false });
  await message(page, "too late").getByRole("button", { name: "Try again" }).click();
  await until(
    () => status(page, "too late"),
    (now) => now === "sent" || now === "delivered",
  );
});

test("history has no end: old messages come before they are needed, and the person stays where they are", async () => {
  for (let at = 1; at <= 300; at += 1) await world.server.say(ben, group, `line ${at}`);
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const feed = page.getByRole("feed");
  await page.getByRole("separator", { name: "New messages" }).waitFor();
  expect(await feed.locator('article[data-sequence="1"]').count()).toBe(1);
  await page.getByRole("button", { name: /^Jump to latest/ }).click();
  await feed.locator('article[data-sequence="300"]').waitFor();
  await feed.hover();
  const first = feed.locator('article[data-sequence="1"]');
  for (let steps = 0; steps < 200 && !(await first.isVisible()); steps += 1) {
    await page.mouse.wheel(0, -1500);
    await page.waitForFunction(
      () => document.querySelector("[role=feed]")?.getAttribute("aria-busy") === "false",
    );
  }
  await first.waitFor();
  await page.getByRole("button", { name: /^Jump to latest/ }).click();
  await message(page, "line 300").waitFor();
  expect(await page.getByRole("log", { name: "New messages" }).textContent()).toBe("");
});

test("a link leads to an old message, and the search finds one", async () => {
  const { sequence: old } = await world.server.say(ben, group, "the rhubarb needs shade");
  for (let at = 1; at <= 70; at += 1) await world.server.say(ben, group, `filler ${at}`);
  const third = await world.signedIn(cleo);
  await openChat(third, "Garden");
  await act(third, "the rhubarb needs shade", "React");
  await third.getByRole("dialog", { name: "Emoji" }).getByRole("button", { name: "🎉", exact: true }).click();
  await message(third, "the rhubarb needs shade").getByRole("button", { name: "🎉, 1" }).waitFor();
  for (let at = 71; at <= 150; at += 1) await world.server.say(ben, group, `filler ${at}`);
  const page = await world.signedIn(ada);
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/chat/${group}/${old}`);
  await message(page, "the rhubarb needs shade").waitFor();
  expect(await message(page, "the rhubarb needs shade").getAttribute("data-sequence")).toBe(String(old));
  await page.getByRole("button", { name: /^Jump to latest/ }).click();
  await message(page, "filler 150").waitFor();

  await page.keyboard.press("Control+Shift+F");
  const search = page.getByRole("dialog", { name: "Search" });
  await search.getByRole("searchbox").fill("rhubarb");
  await search.getByRole("list", { name: "Results" }).getByRole("button").first().click();
  await message(page, "the rhubarb needs shade").getByRole("button", { name: "🎉, 1" }).waitFor();
});

test("details show the members, and completeness is proven", async () => {
  await world.server.say(ben, group, "hello");
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  await page.getByRole("button", { name: "Details" }).click();
  const details = page.getByRole("complementary", { name: "Details" });
  await until(
    () => details.getByRole("list", { name: "Members" }).getByRole("listitem").count(),
    (found) => found === 3,
  );
  const proof = details.getByRole("status", { name: "Completeness" });
  await until(
    () => proof.getAttribute("data-state"),
    (state) => state === "proven",
  );
  expect(Number(await proof.getAttribute("data-sequence"))).toBeGreaterThan(0);
  await details.getByRole("switch", { name: "Mute" }).click();
  await until(
    () => details.getByRole("switch", { name: "Mute" }).getAttribute("aria-checked"),
    (on) => on === "true",
  );
});

test("the story of a message says who has read it", async () => {
  const [one, other] = [await world.signedIn(ada), await world.signedIn(ben)];
  await openChat(one, "Garden");
  await write(one, "Who reads this?");
  await openChat(other, "Garden");
  await message(other, "Who reads this?").waitFor();
  await act(one, "Who reads this?", "Message info");
  const story = one.getByRole("dialog", { name: "Message info" }).getByRole("list", { name: "Story" });
  await story.getByText("Written on this device").waitFor();
  await story.getByText(/Stored as #/).waitFor();
  await story.getByText("Read by Ben").waitFor();
});

test("somebody who is blocked cannot write, and is unblocked again", async () => {
  await world.server.chat(ben, [ada]);
  const page = await world.signedIn(ada);
  await openChat(page, "Ben");
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("button", { name: "Block" }).click();
  await page.getByRole("dialog", { name: "Block Ben?" }).getByRole("button", { name: "Block" }).click();
  await page.getByRole("button", { name: "Unblock" }).waitFor();
  const { blocks } = await world.server.call<{ blocks: { user_id: string }[] }>(
    ada.token,
    "GET",
    "/v1/blocks",
  );
  expect(blocks.map(({ user_id }) => user_id)).toEqual([ben.userId]);
});

test("a device that is removed is at the door within a moment, and keeps nothing", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const { devices } = await world.server.call<{ devices: { device_id: string; current: boolean }[] }>(
    ada.token,
    "GET",
    "/v1/devices",
  );
  const browser = devices.find(({ current }) => !current);
  await world.server.call(ada.token, "DELETE", `/v1/devices/${browser?.device_id}`);
  await page.getByRole("heading", { name: /^Sign in to / }).waitFor();
  expect(await page.getByRole("alert").textContent()).toBe("You were signed out on this device.");
  await until(
    () => page.evaluate(async () => (await indexedDB.databases()).length),
    (left) => left === 0,
  );
});

test("a file goes with a message, with its progress, and the other one can save it", async () => {
  const [one, other] = [await world.signedIn(ada), await world.signedIn(ben)];
  await openChat(one, "Garden");
  await openChat(other, "Garden");
  const path = join(tmpdir(), `plan-${count}.txt`);
  writeFileSync(path, "beans, peas\n".repeat(100_000));
  await one.locator('input[type="file"]').setInputFiles(path);
  await one.getByRole("list", { name: "Files" }).getByText(`plan-${count}.txt`).waitFor();
  await until(
    () => one.getByRole("button", { name: "Send" }).isEnabled(),
    (isEnabled) => isEnabled,
  );
  await write(one, "The plan");
  const received = message(other, "The plan");
  await received.getByText(`plan-${count}.txt`).waitFor();
  const [download] = await Promise.all([
    other.waitForEvent("download"),
    received.getByRole("button", { name: `Download plan-${count}.txt` }).click(),
  ]);
  expect(download.suggestedFilename()).toBe(`plan-${count}.txt`);
});
