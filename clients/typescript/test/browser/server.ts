/** `parley serve` in a process of its own, to be killed and started again on the same data. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { createInterface } from "node:readline";
import type { Batch, Entry } from "../../src/contract.js";

const READY = /^parley ready on http:\/\/\S+:(\d+)/;

export class ParleyServer {
  readonly #data: string;
  readonly #hosts: readonly string[];
  readonly #origins: readonly string[];
  #port = 0;
  #metricsPort = 0;
  #process: ChildProcess | null = null;

  /** `hosts`: more names by which pages may reach it. `origins`: other pages that may. */
  constructor(data: string, hosts: readonly string[], origins: readonly string[] = []) {
    this.#data = data;
    this.#hosts = hosts;
    this.#origins = origins;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** It listens when this resolves; at the port that it had, if it ran before. */
  async start(): Promise<void> {
    const words = ["serve", "--data", this.#data, "--host", "127.0.0.1", "--port", String(this.#port)];
    this.#metricsPort ||= await freePort();
    const env = {
      ...process.env,
      PARLEY_SERVER_HOSTS: this.#hosts.join(","),
      PARLEY_SERVER_ORIGINS: this.#origins.join(","),
      PARLEY_ACCOUNTS_REGISTRATION: "open",
      PARLEY_LIMITS_RATES: "off",
      PARLEY_METRICS_LISTEN: `127.0.0.1:${this.#metricsPort}`,
    };
    const started = spawn(given("PARLEY_PROGRAM"), words, { env, stdio: ["ignore", "pipe", "ignore"] });
    this.#process = started;
    for await (const line of createInterface({ input: started.stdout })) {
      const ready = READY.exec(line);
      if (!ready) continue;
      this.#port = Number(ready[1]);
      started.stdout.resume();
      return;
    }
    throw new Error("the server did not become ready");
  }

  /** SIGKILL, and wait until it has ended. */
  async kill(): Promise<void> {
    const running = this.#process;
    this.#process = null;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    const ended = once(running, "exit");
    running.kill("SIGKILL");
    await ended;
  }

  /** It stops running, and its connections stay open. */
  pause(): void {
    this.#process?.kill("SIGSTOP");
  }

  resume(): void {
    this.#process?.kill("SIGCONT");
  }

  /** How many WebSocket connections it has. */
  async connections(): Promise<number> {
    const metrics = await (await fetch(`http://127.0.0.1:${this.#metricsPort}/metrics`)).text();
    return Number(/^parley_connections (\S+)$/m.exec(metrics)?.[1]);
  }

  /** The log of a chat, whole, as somebody reads it who uses no SDK. */
  async log(chatId: string, token: string): Promise<readonly Entry[]> {
    const headers = { Authorization: `Bearer ${token}` };
    const address = `${this.url}/v1/chats/${chatId}/messages?after=0&limit=500`;
    const page = (await (await fetch(address, { headers })).json()) as Batch;
    if (!page.complete) throw new Error("the log is longer than a page");
    return page.entries;
  }
}

async function freePort(): Promise<number> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  listener.close();
  await once(listener, "close");
  return port;
}

/** What the test that runs this one has put into the environment. */
export function given(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run this by tests/clients/test_browser.py`);
  return value;
}
