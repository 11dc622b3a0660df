/** A real server, the pages as they are built, and people in browsers of their own. */

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from "playwright-core";

const ROOT = new URL("../../../", import.meta.url).pathname;
const READY = /^parley ready on (\S+)/;
const DATABASE = "parley.db";
const DEADLINE_MS = 30_000;
/** Chromium opens no port of some other protocols: none of them is here. */
const PORT_MIN = 7_000;
const PORTS = 2_000;
export const PASSWORD = "a long password";

/** What a test needs from outside: `tests/clients` sets both. */
const PARLEY = process.env.PARLEY_COMMAND ?? join(ROOT, ".venv/bin/parley");
const CHROMIUM = process.env.CHROMIUM ?? "chromium";

export class Server {
  readonly #data = mkdtempSync(join(tmpdir(), "parley-web-"));
  readonly #environment: Record<string, string>;
  #process: ChildProcess | null = null;
  #port = 0;

  constructor(environment: Record<string, string> = {}) {
    this.#environment = environment;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async start(): Promise<void> {
    this.#port ||= await freePort();
    const process_ = spawn(PARLEY, ["serve", "--data", this.#data, "--port", String(this.#port)], {
      env: { ...process.env, ...this.#environment },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#process = process_;
    const said: string[] = [];
    process_.stderr.on("data", (text) => said.push(String(text)));
    await new Promise<void>((resolve, reject) => {
      createInterface({ input: process_.stdout }).on("line", (line) => READY.test(line) && resolve());
      process_.on("exit", (code) =>
        reject(new Error(`the server ended with ${code}: ${said.join("").slice(-2000)}`)),
      );
    });
  }

  get isRunning(): boolean {
    return this.#process?.exitCode === null && this.#process.signalCode === null;
  }

  /** As a crash: nothing is flushed, nobody is told. */
  async kill(): Promise<void> {
    const gone = this.#process;
    if (!gone || gone.exitCode !== null || gone.signalCode !== null) return;
    const ended = new Promise((resolve) => gone.once("exit", resolve));
    gone.kill("SIGKILL");
    await ended;
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#data, { recursive: true, force: true });
  }

  /** Change what is stored behind the server's back, as an accident does. */
  async damage(sql: string, ...values: readonly string[]): Promise<void> {
    const program = `import sys, apsw
other = apsw.Connection(sys.argv[1])
other.setbusytimeout(5000)
other.execute(sys.argv[2], sys.argv[3:])`;
    const python = join(dirname(PARLEY), "python");
    await promisify(execFile)(python, ["-c", program, join(this.#data, DATABASE), sql, ...values]);
  }

  /** A command of the server's machine, on its data. */
  async command(...words: readonly string[]): Promise<string> {
    const run = promisify(execFile);
    const { stdout } = await run(PARLEY, [...words, "--data", this.#data], {
      env: { ...process.env, ...this.#environment },
    });
    return stdout;
  }

  /** Keep what the store has now; what this resolves to brings it back, as after an accident. */
  async backup(): Promise<() => Promise<void>> {
    const kept = mkdtempSync(join(tmpdir(), "parley-kept-"));
    await this.command("backup", kept);
    return async () => {
      await this.kill();
      for (const name of readdirSync(this.#data)) rmSync(join(this.#data, name), { recursive: true });
      await this.command("restore", kept);
      rmSync(kept, { recursive: true });
      await this.start();
    };
  }

  /** Somebody who may operate. */
  async operator(username: string, displayName?: string): Promise<Somebody> {
    const somebody = await this.person(username, displayName);
    await this.command("user", "operator", username);
    return somebody;
  }

  /** One request of the API, as somebody. */
  async call<Answer>(token: string, method: string, path: string, body?: unknown): Promise<Answer> {
    const answer = await fetch(this.url + path, {
      method,
      headers: { ...(token && { Authorization: `Bearer ${token}` }), "Content-Type": "application/json" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return (text ? JSON.parse(text) : undefined) as Answer;
  }

  /** Somebody who has an account, and a token of a device that is none of the browsers. */
  async person(username: string, displayName?: string): Promise<Somebody> {
    const { user_id } = await this.call<{ user_id: string }>("", "POST", "/v1/accounts", {
      username,
      password: PASSWORD,
    });
    const { token } = await this.token(username);
    if (displayName) await this.call(token, "PATCH", "/v1/me", { display_name: displayName });
    return { username, userId: user_id, token };
  }

  /** Somebody who has an account, on a device that is none of the browsers. */
  async token(username: string): Promise<Somebody> {
    const body = { username, password: PASSWORD, device_id: "test" };
    const { token, user_id } = await this.call<{ token: string; user_id: string }>(
      "",
      "POST",
      "/v1/sessions",
      body,
    );
    return { username, userId: user_id, token };
  }

  async say(somebody: Somebody, chatId: string, content: string, more: object = {}): Promise<Said> {
    return this.call(somebody.token, "POST", `/v1/chats/${chatId}/messages`, {
      client_message_id: crypto.randomUUID(),
      content,
      ...more,
    });
  }

  async chat(owner: Somebody, others: readonly Somebody[], title?: string): Promise<string> {
    const body = title
      ? { type: "group", member_ids: others.map(({ userId }) => userId), title }
      : { type: "direct", member_ids: [others[0]?.userId] };
    return (await this.call<{ chat_id: string }>(owner.token, "POST", "/v1/chats", body)).chat_id;
  }
}

export interface Somebody {
  readonly username: string;
  readonly userId: string;
  readonly token: string;
}

export interface Said {
  readonly message_id: string;
  readonly sequence: number;
}

/** A server, its pages, and a browser, for the tests of one file. */
export class World {
  readonly server: Server;
  readonly browser: Browser;
  readonly #contexts: BrowserContext[] = [];

  constructor(server: Server, browser: Browser) {
    this.server = server;
    this.browser = browser;
  }

  get address(): string {
    return this.server.url;
  }

  static async open<Kind extends World>(
    this: new (
      server: Server,
      browser: Browser,
    ) => Kind,
    environment: Record<string, string> = {},
    args: readonly string[] = [],
  ): Promise<Kind> {
    const server = new Server(environment);
    await server.start();
    const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", ...args] });
    return new this(server, browser);
  }

  async close(): Promise<void> {
    await this.browser.close();
    await this.server.stop();
  }

  /** A browser of its own, at the door of a page. */
  async page(options: BrowserContextOptions = {}, path = "/"): Promise<Page> {
    const context = await this.browser.newContext({ locale: "en-GB", ...options });
    this.#contexts.push(context);
    const page = await context.newPage();
    page.setDefaultTimeout(Number(process.env.PAGE_MS ?? DEADLINE_MS));
    await page.goto(this.address + path);
    return page;
  }

  /** The browsers of one test. */
  async leave(): Promise<void> {
    await Promise.all(this.#contexts.splice(0).map((context) => context.close()));
    if (!this.server.isRunning) await this.server.start();
  }
}

/** Wait until something holds; its last value is in the error. */
export async function until<Value>(
  read: () => Promise<Value>,
  holds: (value: Value) => boolean,
): Promise<Value> {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const value = await read();
    if (holds(value)) return value;
    if (Date.now() > deadline) throw new Error(`not so in time: ${JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Below the source ports of Linux: while the server is down, no connection gets the port as its own. */
async function freePort(): Promise<number> {
  const port = PORT_MIN + Math.floor(Math.random() * PORTS);
  const server = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, "127.0.0.1", resolve);
    });
  } catch {
    return freePort();
  }
  await new Promise((resolve) => server.close(resolve));
  return port;
}
