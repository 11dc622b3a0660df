/** How much a page holds, whatever the chat holds. Times are written down; sizes and counts are asserted. */

import type { CDPSession, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { message, openChat, type Somebody, signIn, until, World } from "./world.js";

/** `make test-all` has the hundred thousand of which the promise is. */
const MESSAGES = Number(process.env.MESSAGES ?? 4_000);
/** And the ten thousand that somebody has missed. */
const MISSED = Number(process.env.MISSED ?? 4_000);
const ROWS_MAX = 120;
const NODES_MAX = 2_500;
const REQUESTS_MAX = 8;
const FIRST_LOAD_BYTES_MAX = 110 * 1024;
const SAID_AT_ONCE = 40;
const HEAP_MB_MAX = 80;
/** What three rounds of scrolling may leave behind. */
const HEAP_GROWTH_MAX = 1.05;

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

interface Watched {
  /** Tasks of more than 50 ms, which keep the page from drawing. */
  readonly tasks: number[];
  /** How long each frame was on the screen. */
  readonly frames: number[];
}

/** From now on, in every page of the context that is loaded, and in this one. */
async function watchTimes(page: Page): Promise<void> {
  const watch = () => {
    const watched = { tasks: [] as number[], frames: [] as number[] };
    (window as unknown as { watched: Watched }).watched = watched;
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) watched.tasks.push(Math.round(duration));
    }).observe({ type: "longtask" });
    let before = performance.now();
    const frame = (now: number) => {
      watched.frames.push(now - before);
      before = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  };
  await page.addInitScript(watch);
  await page.evaluate(watch);
}

async function told(page: Page): Promise<string> {
  const { tasks, frames } = await page.evaluate(() => (window as unknown as { watched: Watched }).watched);
  const late = frames.filter((ms) => ms > 50).map(Math.round);
  const worst = Math.round(Math.max(0, ...frames));
  return `${frames.length} frames, worst ${worst} ms, over 50 ms: ${late.length}; tasks over 50 ms: ${tasks.join(", ") || "none"}`;
}

async function say(chat: string, many: number, text: (number: number) => string): Promise<void> {
  for (let at = 1; at <= many; at += SAID_AT_ONCE) {
    const some = Array.from({ length: Math.min(SAID_AT_ONCE, many - at + 1) }, (_, next) => at + next);
    await Promise.all(some.map((number) => world.server.say(ben, chat, text(number))));
  }
}

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
  await say(chat, MESSAGES, (number) => `message ${number} ${"of many ".repeat(number % 9)}`);
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

  await watchTimes(page);
  const heaps: number[] = [];
  // The first round fills what is kept of the log.
  for (let round = 0; round < 4; round += 1) {
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

  process.stdout.write(`while scrolling: ${await told(page)}\n`);
  expect(Math.max(...heaps)).toBeLessThanOrEqual(HEAP_MB_MAX);
  expect(heaps.at(-1)).toBeLessThanOrEqual((heaps[1] as number) * HEAP_GROWTH_MAX + 1);

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
  const first = await world.page();
  const acked = new Promise<void>((resolve) =>
    first.on("websocket", (socket) =>
      socket.on("framesent", ({ payload }) => String(payload).includes('"type":"ack"') && resolve()),
    ),
  );
  await signIn(first, "ada");
  await openChat(first, "Missed");
  await message(first, "before").waitFor();
  // From here on the server knows how far the browser is.
  await acked;
  const context = first.context();
  await first.close();
  await say(chat, MISSED, (number) => `missed ${number}`);

  const page = await context.newPage();
  await page.addInitScript(() => {
    const said: string[] = [];
    (window as unknown as { said: string[] }).said = said;
    new MutationObserver(() => {
      const status = document.querySelector('[aria-label="Connection"][data-state="catching_up"]');
      if (status?.textContent && status.textContent !== said.at(-1)) said.push(status.textContent);
    }).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  });
  await watchTimes(page);
  const begun = Date.now();
  await page.goto(`${world.address}/#/settings`);
  const link = page.getByRole("list", { name: "Chats" }).getByRole("link", { name: "Missed" });
  await expect
    .poll(() => link.getAttribute("data-unread"), { timeout: 60_000 })
    .toBe(String(Math.min(MISSED, 999)));
  const said = () => page.evaluate(() => (window as unknown as { said: string[] }).said);
  await until(said, (all) => all.length > 0);
  await page
    .locator('[aria-label="Connection"][data-state="online"]')
    .waitFor({ state: "attached", timeout: 120_000 });
  const caughtUp = Date.now() - begun;
  const steps = await said();
  const of = MISSED.toLocaleString("en");
  const done = steps.map((step) => Number(/^Catching up: ([\d,]+) of/.exec(step)?.[1]?.replaceAll(",", "")));
  expect(steps.length).toBeGreaterThan(0);
  expect(steps.filter((step) => !step.endsWith(` of ${of}`))).toEqual([]);
  expect(done).toEqual([...done].sort((one, other) => one - other));

  await openChat(page, "Missed");
  await page.getByRole("separator", { name: "New messages" }).waitFor();
  await page.getByRole("button", { name: /^Jump to latest/ }).click();
  await message(page, `missed ${MISSED}`).first().waitFor();
  const { rows, nodes } = await held(page);
  expect(rows).toBeLessThanOrEqual(ROWS_MAX);
  expect(nodes).toBeLessThanOrEqual(NODES_MAX);
  process.stdout.write(
    `${MISSED} missed: caught up after ${caughtUp} ms, shown after ${Date.now() - begun} ms, said ${steps.length} times; ${await told(page)}\n`,
  );
});
