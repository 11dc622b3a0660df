/** How much a page holds, whatever the chat holds. Times are written down; sizes and counts are asserted. */

import type { CDPSession, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { message, openChat, type Somebody, World } from "./world.js";

/** `make test-all` has the hundred thousand of which the promise is. */
const MESSAGES = Number(process.env.MESSAGES ?? 4_000);
const ROWS_MAX = 120;
const NODES_MAX = 2_500;
const REQUESTS_MAX = 8;
const FIRST_LOAD_BYTES_MAX = 110 * 1024;
const SAID_AT_ONCE = 40;

let world: World;
let ada: Somebody;
let ben: Somebody;
beforeAll(async () => {
  world = await World.open();
  ada = await world.server.person("ada", "Ada");
  ben = await world.server.person("ben", "Ben");
});
afterEach(() => world.leave());
afterAll(() => world.close());

interface Held {
  readonly rows: number;
  readonly nodes: number;
}

const held = (page: Page): Promise<Held> =>
  page.evaluate(() => ({
    rows: document.querySelectorAll('[role="feed"] article').length,
    nodes: document.querySelectorAll("*").length,
  }));

/** From now on, tasks that keep the page from drawing. */
const watchTasks = (page: Page) =>
  page.evaluate(() => {
    const tasks: number[] = [];
    (window as unknown as { tasks: number[] }).tasks = tasks;
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) tasks.push(Math.round(duration));
    }).observe({ type: "longtask" });
  });

const longTasks = (page: Page) =>
  page.evaluate(() => (window as unknown as { tasks: number[] }).tasks.splice(0));

async function heapMb(cdp: CDPSession): Promise<number> {
  await cdp.send("HeapProfiler.collectGarbage");
  const { metrics } = await cdp.send("Performance.getMetrics");
  return (metrics.find(({ name }) => name === "JSHeapUsedSize")?.value ?? 0) / 1024 ** 2;
}

test("the first visit is small, and asks little", async () => {
  const page = await (await world.browser.newContext()).newPage();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  let bytes = 0;
  const asked = new Set<string>();
  const sources = new Map<string, string>();
  cdp.on("Network.requestWillBeSent", ({ requestId, request }) =>
    sources.set(requestId, new URL(request.url).pathname),
  );
  cdp.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    const path = sources.get(requestId) ?? "";
    if (path.startsWith("/v1/")) return;
    asked.add(path);
    bytes += encodedDataLength;
  });
  await page.goto(world.address, { waitUntil: "networkidle" });
  await page.context().close();
  process.stdout.write(`first visit: ${(bytes / 1024).toFixed(1)} KB, ${asked.size} files\n`);
  expect(asked.size).toBeLessThanOrEqual(REQUESTS_MAX);
  expect(bytes).toBeLessThan(FIRST_LOAD_BYTES_MAX);
});

test("however long a chat is, the page holds a screenful of it", { timeout: 400_000 }, async () => {
  const chat = await world.server.chat(ada, [ben], "Long");
  for (let at = 1; at <= MESSAGES; at += SAID_AT_ONCE) {
    const some = Array.from({ length: Math.min(SAID_AT_ONCE, MESSAGES - at + 1) }, (_, next) => at + next);
    await Promise.all(
      some.map((number) => world.server.say(ben, chat, `message ${number} ${"of many ".repeat(number % 9)}`)),
    );
  }
  const page = await world.signedIn(ada);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable");
  const opened = Date.now();
  await openChat(page, "Long");
  await message(page, "message").first().waitFor();
  process.stdout.write(`opened after ${Date.now() - opened} ms\n`);
  await page.getByRole("button", { name: /^Jump to latest/ }).click();
  const last = page.locator(`[role=feed] article[data-sequence="${MESSAGES}"]`);
  await last.waitFor();
  await page.getByRole("feed").hover();

  await watchTasks(page);
  const heaps: number[] = [];
  for (let round = 0; round < 3; round += 1) {
    for (let step = 0; step < 60; step += 1) {
      await page.mouse.wheel(0, step < 30 ? -2500 : 2500);
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
      const { rows, nodes } = await held(page);
      expect(rows).toBeLessThanOrEqual(ROWS_MAX);
      expect(nodes).toBeLessThanOrEqual(NODES_MAX);
    }
    heaps.push(await heapMb(cdp));
  }
  process.stdout.write(`heap after each round: ${heaps.map((mb) => mb.toFixed(1)).join(", ")} MB\n`);

  process.stdout.write(`tasks over 50 ms while scrolling: ${(await longTasks(page)).join(", ") || "none"}\n`);

  // A place in the middle is one jump away, however far.
  await page.getByRole("button", { name: "Details" }).click();
  const middle = Math.floor(MESSAGES / 2);
  await page.getByRole("slider", { name: "History" }).fill(String(middle));
  await page.locator(`[role=feed] article[data-sequence="${middle}"]`).waitFor();
  const { rows, nodes } = await held(page);
  expect(rows).toBeLessThanOrEqual(ROWS_MAX);
  expect(nodes).toBeLessThanOrEqual(NODES_MAX);
});

test("what was missed is caught up, and the page says how far it is", { timeout: 400_000 }, async () => {
  const chat = await world.server.chat(ada, [ben], "Missed");
  await world.server.say(ben, chat, "before");
  const first = await world.signedIn(ada);
  await openChat(first, "Missed");
  await message(first, "before").waitFor();
  const context = first.context();
  await first.close();
  const missed = Math.floor(MESSAGES / 4);
  for (let at = 1; at <= missed; at += SAID_AT_ONCE) {
    const some = Array.from({ length: Math.min(SAID_AT_ONCE, missed - at + 1) }, (_, next) => at + next);
    await Promise.all(some.map((number) => world.server.say(ben, chat, `missed ${number}`)));
  }
  const page = await context.newPage();
  await page.goto(`${world.address}/#/settings`);
  await watchTasks(page);
  const link = page.getByRole("list", { name: "Chats" }).getByRole("link", { name: "Missed" });
  const begun = Date.now();
  await expect
    .poll(() => link.getAttribute("data-unread"), { timeout: 60_000 })
    .toBe(String(Math.min(missed, 999)));
  await openChat(page, "Missed");
  await page.getByRole("button", { name: /^Jump to latest/ }).click();
  await message(page, `missed ${missed}`).first().waitFor();
  const tasks = await longTasks(page);
  process.stdout.write(
    `${missed} missed: shown after ${Date.now() - begun} ms, tasks over 50 ms: ${tasks.join(", ") || "none"}\n`,
  );
});
