/** A real Chromium with a folder of its own, to be killed and started again on the same folder. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import type { ConnectOptions, connect, indexedDb, Sending } from "../../src/index.js";
import { bundled } from "../package/bundle.js";
import { given } from "./server.js";

/** Where the page is: nothing is served there, every request for it is answered here. */
const PATH = "/page-of-the-test";
const HTML = '<!doctype html><title>test</title><script type="module" src="/page-of-the-test.js"></script>';
const SCRIPT = 'import * as parley from "parley-chat"; window.parley = parley;';
/** A page that is answered here counts as one of the internet, which may not talk to this machine. */
const FEATURES_OFF = "LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets";
const START_MS_MAX = 30_000;
const POLL_MS = 50;

/** What a page has in `window`. */
export interface PageGlobals {
  parley: { connect: typeof connect; indexedDb: typeof indexedDb };
  me: Awaited<ReturnType<typeof connect>>;
  sendings: Sending[];
}

export interface Person {
  readonly token: string;
  readonly userId: string;
}

const DEVICE = "laptop";

export class Chromium {
  readonly #folder: string;
  readonly #words: readonly string[];
  #process: ChildProcess | null = null;
  #browser: Browser | null = null;
  #script = "";

  /** `words`: more of its command line. */
  constructor(folder: string, words: readonly string[] = []) {
    this.#folder = folder;
    this.#words = words;
  }

  async start(): Promise<void> {
    this.#script ||= await bundled(SCRIPT);
    const started = spawn(
      given("PARLEY_CHROMIUM"),
      [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        `--disable-features=${FEATURES_OFF}`,
        "--remote-debugging-port=0",
        `--user-data-dir=${this.#folder}`,
        ...this.#words,
        "about:blank",
      ],
      { detached: true, stdio: ["ignore", "ignore", "pipe"] },
    );
    this.#process = started;
    this.#browser = await chromium.connectOverCDP(await addressOf(started), { timeout: START_MS_MAX });
  }

  /** SIGKILL to all of its processes, and wait until they have ended. */
  async kill(): Promise<void> {
    const running = this.#process;
    this.#process = this.#browser = null;
    if (!running?.pid || running.exitCode !== null || running.signalCode !== null) return;
    const ended = once(running, "exit");
    process.kill(-running.pid, "SIGKILL");
    await ended;
  }

  /** A tab with the SDK in it, at the address of a server that need not be there. */
  async page(url: string): Promise<Page> {
    const page = await this.context.newPage();
    await page.route(`${url}${PATH}*`, (route) =>
      route.request().url().endsWith(".js")
        ? route.fulfill({ contentType: "text/javascript", body: this.#script })
        : route.fulfill({ contentType: "text/html", body: HTML }),
    );
    await page.goto(url + PATH);
    return page;
  }

  get context(): BrowserContext {
    const context = this.#browser?.contexts()[0];
    if (!context) throw new Error("the browser does not run");
    return context;
  }
}

/** The address at which a browser that was just started takes commands. */
async function addressOf(started: ChildProcess): Promise<string> {
  let said = "";
  for await (const part of started.stderr as NodeJS.ReadableStream) {
    said += part;
    const found = /DevTools listening on (ws:\S+)/.exec(said);
    if (!found?.[1]) continue;
    (started.stderr as NodeJS.ReadableStream).resume();
    return found[1];
  }
  throw new Error(`Chromium ended: ${said}`);
}

declare const window: PageGlobals;

/** Connect in a page; it goes on without the server, too. */
export async function connectIn(page: Page, url: string, { token, userId }: Person): Promise<void> {
  const who = { userId, deviceId: DEVICE } satisfies ConnectOptions;
  await page.evaluate(
    async ([address, secret, given]) => {
      const { connect, indexedDb } = window.parley;
      window.me = await connect(address, secret, { ...given, store: indexedDb() });
      window.sendings = [];
    },
    [url, token, who] as const,
  );
}

/** Write messages in a page; they are kept on the device when this resolves. */
export async function write(page: Page, chatId: string, texts: readonly string[]): Promise<boolean[]> {
  return page.evaluate(
    ([id, contents]) => {
      const sent = contents.map((text) => window.me.chat(id).send(text));
      window.sendings.push(...sent);
      return Promise.all(sent.map((sending) => sending.kept()));
    },
    [chatId, texts] as const,
  );
}

export const isOnline = (page: Page) => page.evaluate(() => window.me.isOnline);
export const isLeader = (page: Page) => page.evaluate(() => window.me.isLeader);
export const unsentIn = (page: Page) => page.evaluate(() => window.me.unsent.length);
export const statusesIn = (page: Page) => page.evaluate(() => window.sendings.map((one) => one.status));
export const storageOf = (page: Page) => page.evaluate(() => window.me.storage);

/** Wait until something that is asked again and again is so. */
export async function until(holds: () => Promise<boolean>, what: string, msMax = 30_000): Promise<void> {
  const end = Date.now() + msMax;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`after ${msMax} ms it still does not hold: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
