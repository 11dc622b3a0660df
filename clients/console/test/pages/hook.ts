/** A program that takes webhooks, as long as a test wants it to. */

import { createServer, type Server } from "node:http";

export class Hook {
  readonly got: { readonly type: string }[] = [];
  readonly url: string;
  answers = 204;
  readonly #server: Server;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.url = `http://127.0.0.1:${port}/hook`;
  }

  static async open(): Promise<Hook> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    const hook = new Hook(server, typeof address === "object" && address ? address.port : 0);
    server.on("request", (request, response) => {
      const parts: Buffer[] = [];
      request.on("data", (part) => parts.push(part));
      request.on("end", () => {
        hook.got.push(JSON.parse(Buffer.concat(parts).toString()));
        response.writeHead(hook.answers).end();
      });
    });
    return hook;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** Lets a server of a test call one. */
export const ALLOWED = { PARLEY_WEBHOOKS_ALLOWED_NETWORKS: "127.0.0.0/8" };
