/** Operators in browsers of their own, on the console of a real server. */

import { createServer, type Server as HttpServer } from "node:http";
import type { BrowserContextOptions, Page } from "playwright-core";
import { World as AnyWorld, PASSWORD, type Somebody, until } from "../../../ui/test/world.js";

export { PASSWORD, type Said, Server, type Somebody, until } from "../../../ui/test/world.js";

/** A server, the console, and a browser, for the tests of one file. */
export class World extends AnyWorld {
  /** A browser at the console, signed in, at a page of it. */
  async console(
    somebody: Pick<Somebody, "username">,
    hash = "",
    options: BrowserContextOptions = {},
  ): Promise<Page> {
    const page = await this.page(options, `/console${hash}`);
    await signIn(page, somebody.username);
    return page;
  }
}

export async function signIn(page: Page, username: string, password = PASSWORD): Promise<void> {
  await fillDoor(page, username, password);
  await page.getByRole("navigation", { name: "Console" }).waitFor({ state: "attached" });
}

export async function fillDoor(page: Page, username: string, password = PASSWORD): Promise<void> {
  await page.getByRole("textbox", { name: "Username" }).fill(username);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
}

export async function goTo(page: Page, name: string): Promise<void> {
  await page.getByRole("navigation", { name: "Console" }).getByRole("link", { name, exact: true }).click();
  await page.getByRole("heading", { level: 1, name }).waitFor();
}

/** Who receives the events of a webhook, and answers as it is told. */
export class Receiver {
  status = 400;
  readonly bodies: string[] = [];
  readonly #server: HttpServer;

  private constructor(server: HttpServer) {
    this.#server = server;
  }

  static async open(): Promise<Receiver> {
    const server = createServer((request, answer) => {
      const parts: Buffer[] = [];
      request.on("data", (part) => parts.push(part));
      request.on("end", () => {
        receiver.bodies.push(Buffer.concat(parts).toString());
        answer.writeHead(receiver.status).end();
      });
    });
    const receiver = new Receiver(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return receiver;
  }

  get url(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}/events`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** Settings of a server that sends its webhooks to this machine. */
export const TO_THIS_MACHINE = { PARLEY_WEBHOOKS_ALLOWED_NETWORKS: "127.0.0.0/8" };

/** Wait until so many messages became dead letters. */
export async function deadLetters(world: World, operator: Somebody, count: number): Promise<void> {
  const { server } = world;
  await until(
    async () =>
      (await server.call<{ total: number }>(operator.token, "GET", "/v1/admin/dlq?status=pending")).total,
    (total) => total >= count,
  );
}
