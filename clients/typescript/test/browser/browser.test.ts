import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { login, register } from "../../src/accounts.js";
import { Http } from "../../src/http.js";
import { thisPlatform } from "../../src/platform.js";
import { Tokens } from "../../src/tokens.js";
import {
  Chromium,
  connectIn,
  isLeader,
  isOnline,
  type Person,
  statusesIn,
  storageOf,
  unsentIn,
  until,
  write,
} from "./browser.js";
import { ParleyServer } from "./server.js";

/** A name by which a page is on plain http as in a home network: no Web Locks, no `crypto.randomUUID`. */
const PLAIN_HOST = "chat.test";

/** A heartbeat would find out later that the network is gone. */
const NOTICED_MS_MAX = 20_000;

let folder = "";
let server: ParleyServer;
let browser: Chromium;
let people = 0;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "parley-browser-"));
  server = new ParleyServer(join(folder, "data"), [PLAIN_HOST]);
  await server.start();
});

beforeEach(async () => {
  people += 1;
  browser = new Chromium(join(folder, `profile${people}`), [
    `--host-resolver-rules=MAP ${PLAIN_HOST} 127.0.0.1`,
  ]);
  await browser.start();
});

afterEach(() => browser.kill());

afterAll(async () => {
  await server.kill();
  await rm(folder, { recursive: true, force: true });
});

interface Ada extends Person {
  readonly chatId: string;
}

async function newAda(): Promise<Ada> {
  const name = `ada${people}`;
  const userId = await register(server.url, name, "a long password");
  const token = await login(server.url, name, "a long password", { deviceId: "laptop" });
  const platform = thisPlatform();
  const http = new Http(server.url, platform, new Tokens(token, platform, "ada"));
  const body = { type: "group", member_ids: [], title: "notes" } as const;
  const { chat_id: chatId } = await http.call("POST /v1/chats", { body });
  return { token, userId, chatId };
}

/** A tab of Ada's that is connected. */
async function tabOf(ada: Ada, url = server.url): Promise<Page> {
  const page = await browser.page(url);
  await connectIn(page, url, ada);
  await until(() => isOnline(page), "the tab is online");
  return page;
}

async function tabsOf(ada: Ada, count: number, url?: string): Promise<Page[]> {
  const tabs: Page[] = [];
  while (tabs.length < count) tabs.push(await tabOf(ada, url));
  return tabs;
}

async function stored(ada: Ada): Promise<string[]> {
  const log = await server.log(ada.chatId, ada.token);
  return log.filter((entry) => entry.kind === "message").map((entry) => entry.content ?? "");
}

/** Whichever of these leads. */
async function leaderOf(tabs: readonly Page[]): Promise<Page> {
  let leader: Page | undefined;
  await until(async () => {
    const leads = await Promise.all(tabs.map(isLeader));
    leader = tabs[leads.indexOf(true)];
    return leads.filter(Boolean).length === 1;
  }, "one tab leads");
  return leader as Page;
}

async function ledBy(tabs: readonly Page[]): Promise<{ leader: Page; others: readonly Page[] }> {
  const leader = await leaderOf(tabs);
  return { leader, others: tabs.filter((tab) => tab !== leader) };
}

const texts = (name: string | number, count: number) =>
  Array.from({ length: count }, (_, at) => `${name} ${at}`);

/** A hundred in all, by four tabs at once; they are kept when this resolves. */
async function writeAHundred(ada: Ada, tabs: readonly Page[]): Promise<void> {
  expect(tabs).toHaveLength(4);
  await Promise.all(tabs.map((tab, who) => write(tab, ada.chatId, texts(who, 25))));
}

/** Once each, and what a tab wrote in the order in which it did. */
async function hundredAreStored(ada: Ada, tabs: readonly Page[]): Promise<void> {
  await leaderOf(tabs);
  for (const tab of tabs) await until(async () => (await unsentIn(tab)) === 0, "nothing waits", 60_000);
  const log = await stored(ada);
  expect(log).toHaveLength(100);
  for (const [who] of tabs.entries()) {
    expect(log.filter((text) => text.startsWith(`${who} `))).toEqual(texts(who, 25));
  }
}

/** As a renderer that runs out of memory ends: at once, and nothing in it hears of it. */
async function crash(page: Page): Promise<void> {
  const crashed = page.waitForEvent("crash");
  const session = await page.context().newCDPSession(page);
  session.send("Page.crash").catch(() => {});
  await crashed;
}

const FIVE = ["one", "two", "three", "four", "five"];

describe("what was written offline", () => {
  test("is there once and in order after the tab was closed and the server killed", async () => {
    const ada = await newAda();
    const tab = await tabOf(ada);
    await browser.context.setOffline(true);
    await until(async () => !(await isOnline(tab)), "the tab has noticed", NOTICED_MS_MAX);
    expect(await write(tab, ada.chatId, FIVE)).toEqual(FIVE.map(() => true));
    expect(await statusesIn(tab)).toEqual(FIVE.map(() => "queued"));
    await tab.close();
    await server.kill();
    await server.start();
    await browser.context.setOffline(false);
    expect(await stored(ada)).toEqual([]);
    const next = await tabOf(ada);
    await until(async () => (await unsentIn(next)) === 0, "nothing waits");
    expect(await stored(ada)).toEqual(FIVE);
  });

  test("is there once and in order after the browser was killed, too", async () => {
    const ada = await newAda();
    const tab = await tabOf(ada);
    await server.kill();
    await until(async () => !(await isOnline(tab)), "the tab is offline");
    expect(await write(tab, ada.chatId, FIVE)).toEqual(FIVE.map(() => true));
    await browser.kill();
    await server.start();
    await browser.start();
    expect(await stored(ada)).toEqual([]);
    const next = await tabOf(ada);
    await until(async () => (await unsentIn(next)) === 0, "nothing waits");
    expect(await stored(ada)).toEqual(FIVE);
  });

  test("is there once when the browser is killed while it goes out", async () => {
    const ada = await newAda();
    const written = texts("message", 200);
    const tab = await tabOf(ada);
    await server.kill();
    await until(async () => !(await isOnline(tab)), "the tab is offline");
    await write(tab, ada.chatId, written);
    await server.start();
    await until(async () => (await stored(ada)).length > 0, "some are stored");
    await browser.kill();
    await browser.start();
    const next = await tabOf(ada);
    await until(async () => (await unsentIn(next)) === 0, "nothing waits", 60_000);
    expect(await stored(ada)).toEqual(written);
  });
});

test("signing out leaves nothing on the device though a frozen tab holds the database", async () => {
  const ada = await newAda();
  const tab = await tabOf(ada);
  await server.kill();
  await write(tab, ada.chatId, FIVE);
  // What does not close its handle when it is asked to is as good as frozen.
  const frozen = await browser.page(server.url);
  const rows = () => frozen.evaluate(rowsHeldOpen);
  expect(await rows()).toBe(5);
  await tab.evaluate("me.wipe()");
  expect(await rows()).toBe(0);
  await frozen.close();
  await server.start();
  const next = await tabOf(ada);
  expect(await unsentIn(next)).toBe(0);
  expect(await stored(ada)).toEqual([]);
});

/** How many rows the outbox has, by a handle that is opened once and kept. */
async function rowsHeldOpen(): Promise<number> {
  const global = globalThis as { held?: IDBDatabase };
  const done = <Result>(request: IDBRequest<Result>): Promise<Result> =>
    new Promise((resolve) => request.addEventListener("success", () => resolve(request.result)));
  if (!global.held) {
    const [known] = await indexedDB.databases();
    global.held = await done(indexedDB.open(known?.name ?? ""));
  }
  return done(global.held.transaction("outbox").objectStore("outbox").count());
}

describe.each(["127.0.0.1", PLAIN_HOST])("five tabs at %s", (host) => {
  const here = () => server.url.replace("127.0.0.1", host);

  test("have one connection", async () => {
    const ada = await newAda();
    const before = await server.connections();
    const tabs = await tabsOf(ada, 5, here());
    expect(await tabs[0]?.evaluate(() => "locks" in navigator)).toBe(host !== PLAIN_HOST);
    expect(await Promise.all(tabs.map(storageOf))).toEqual(tabs.map(() => "indexeddb"));
    await leaderOf(tabs);
    await until(async () => (await server.connections()) === before + 1, "there is one connection more");
    expect(await Promise.all(tabs.map(isOnline))).toEqual(tabs.map(() => true));
  });

  test("store exactly a hundred when the leader is killed while a hundred go out", async () => {
    const ada = await newAda();
    const { leader, others } = await ledBy(await tabsOf(ada, 5, here()));
    const writing = writeAHundred(ada, others);
    await until(async () => (await stored(ada)).length > 0, "some are stored");
    await crash(leader);
    await writing;
    await hundredAreStored(ada, others);
  });

  test("store exactly a hundred when the leader is killed before it hears of any", async () => {
    const ada = await newAda();
    const { leader, others } = await ledBy(await tabsOf(ada, 5, here()));
    server.pause();
    await writeAHundred(ada, others);
    await until(async () => (await statusesIn(others[0] as Page)).includes("sending"), "some are sent");
    await crash(leader);
    server.resume();
    await hundredAreStored(ada, others);
  });
});
