/**
 * What the maker of a browser runs, as far as it concerns us: it takes what the server sends, sealed for one subscription,
 * and the browser opens it. Here the test opens it, and hands it to the browser as its own push service would.
 */

import { createDecipheriv, createECDH, type ECDH, hkdfSync, randomBytes } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

const SALT_BYTES = 16;
const TAG_BYTES = 16;
const HEADER_BYTES = 21;

export class PushService {
  /** What was received, opened, in its order. */
  readonly received: Record<string, unknown>[] = [];
  readonly #keys: ECDH;
  readonly #auth = randomBytes(SALT_BYTES);
  readonly #server: Server;

  private constructor() {
    this.#keys = createECDH("prime256v1");
    this.#keys.generateKeys();
    this.#server = createServer((request, answer) => {
      const parts: Buffer[] = [];
      request.on("data", (part) => parts.push(part));
      request.on("end", () => {
        this.received.push(JSON.parse(this.#open(Buffer.concat(parts))));
        answer.writeHead(201).end();
      });
    });
  }

  static async open(): Promise<PushService> {
    const service = new PushService();
    await new Promise<void>((resolve) => service.#server.listen(0, "127.0.0.1", resolve));
    return service;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** What a browser tells of a subscription. */
  get subscription() {
    const { port } = this.#server.address() as AddressInfo;
    return {
      endpoint: `http://127.0.0.1:${port}/push/1`,
      expirationTime: null,
      keys: {
        p256dh: this.#keys.getPublicKey("base64url"),
        auth: this.#auth.toString("base64url"),
      },
    };
  }

  /** RFC 8291: one record of aes128gcm, for the keys of the subscription. */
  #open(sealed: Buffer): string {
    const salt = sealed.subarray(0, SALT_BYTES);
    const length = sealed.readUInt8(HEADER_BYTES - 1);
    const sender = sealed.subarray(HEADER_BYTES, HEADER_BYTES + length);
    const record = sealed.subarray(HEADER_BYTES + length);
    const shared = this.#keys.computeSecret(sender);
    const about = Buffer.concat([Buffer.from("WebPush: info\0"), this.#keys.getPublicKey(), sender]);
    const secret = Buffer.from(hkdfSync("sha256", shared, this.#auth, about, 32));
    const key = Buffer.from(hkdfSync("sha256", secret, salt, "Content-Encoding: aes128gcm\0", 16));
    const nonce = Buffer.from(hkdfSync("sha256", secret, salt, "Content-Encoding: nonce\0", 12));
    const decipher = createDecipheriv("aes-128-gcm", key, nonce);
    decipher.setAuthTag(record.subarray(-TAG_BYTES));
    const padded = Buffer.concat([decipher.update(record.subarray(0, -TAG_BYTES)), decipher.final()]);
    return padded.subarray(0, padded.lastIndexOf(2)).toString();
  }
}
