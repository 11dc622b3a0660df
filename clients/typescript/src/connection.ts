/** The WebSocket of one tab: opened, greeted, replaced when it breaks. It decides nothing about chats. */

import { HELLO_TIMEOUT, REVOKED, TOKEN_EXPIRED, TOO_BIG, UNAUTHENTICATED } from "./closeCodes.js";
import { type Codec, NotAFrame } from "./codec.js";
import type { ClientFrame, ServerFrame, Welcome } from "./contract.js";
import { BadToken, CannotConnect, type ClientError, Closed } from "./core/errors.js";
import { backoffMs, type Timing } from "./core/timing.js";
import type { Platform, Socket } from "./platform.js";
import { RETRY_MS, type Tokens } from "./tokens.js";

const NORMAL = 1000;
const MUST_LOG_IN: ReadonlySet<number> = /* @__PURE__ */ new Set<number>([
  UNAUTHENTICATED,
  REVOKED,
  TOKEN_EXPIRED,
]);

export interface ConnectionOptions {
  readonly url: string;
  readonly codec: Codec;
  readonly live: boolean;
  readonly timing: Timing;
  readonly tokens: Tokens;
  /** The device that the token is for. */
  readonly deviceId: () => Promise<string>;
  readonly platform: Platform;
}

export interface ConnectionEvents {
  connected(welcome: Welcome): void;
  received(frame: ServerFrame): void;
  disconnected(): void;
  /** An attempt failed; there will be others. */
  unreachable(error: CannotConnect): void;
  /** Reconnecting cannot help. */
  failed(error: ClientError): void;
}

/** Stays connected from `start` until `stop`, or until the server forbids it. */
export class Connection {
  readonly #options: ConnectionOptions;
  readonly #events: ConnectionEvents;
  /** Whatever belongs to an earlier attempt is ignored. */
  #attempt = 0;
  #failures = 0;
  #isRunning = false;
  #socket: Socket | null = null;
  #isWelcome = false;
  #callOff: () => void = () => {};
  #callOffRenewal: () => void = () => {};

  constructor(options: ConnectionOptions, events: ConnectionEvents) {
    this.#options = options;
    this.#events = events;
  }

  start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#failures = 0;
    void this.#connect();
  }

  /** End the connection; `start` begins another one. */
  stop(): void {
    this.#isRunning = false;
    this.#end();
  }

  /** The connection is dead: open another one at once. */
  replace(): void {
    if (!this.#isRunning) return;
    this.#end();
    void this.#connect();
  }

  /** The machine or the network may be back: do not wait any longer. Returns whether there is a connection to try. */
  wake(): boolean {
    if (!this.#isRunning || this.#isWelcome) return this.#isWelcome;
    if (this.#socket === null) {
      this.#failures = 0;
      void this.#connect();
    }
    return false;
  }

  send(frames: readonly ClientFrame[]): void {
    if (this.#socket && this.#isWelcome) for (const frame of frames) this.#write(this.#socket, frame);
  }

  async #connect(): Promise<void> {
    const { tokens, deviceId, platform, url, codec, live, timing } = this.#options;
    this.#callOff();
    this.#attempt += 1;
    const attempt = this.#attempt;
    const isOld = () => attempt !== this.#attempt;
    let hello: ClientFrame;
    try {
      hello = { type: "hello", id: 0, token: await tokens.fresh(), device_id: await deviceId(), live };
    } catch (error) {
      if (isOld()) return;
      if (error instanceof CannotConnect) this.#retry(error);
      else this.#fail(error as ClientError);
      return;
    }
    if (isOld()) return;
    if (!platform.socketClass) {
      this.#fail(
        new Closed("there is no WebSocket here: pass that of the package ws, as connect(…, { WebSocket })"),
      );
      return;
    }
    this.#callOff = platform.after(timing.answerMs, () => this.#broken("it did not answer in time"));
    let socket: Socket;
    try {
      socket = new platform.socketClass(`${url.replace(/^http/, "ws")}/v1/ws`, codec.protocol);
    } catch (error) {
      this.#fail(new Closed(`${url} cannot be opened: ${String(error)}`));
      return;
    }
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#write(socket, hello);
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code, reason }) => this.#closed(code, reason);
    socket.onerror = () => {};
  }

  #write(socket: Socket, frame: ClientFrame): void {
    try {
      socket.send(this.#options.codec.encode(frame));
    } catch {
      // A socket that is closing says so by `onclose`.
    }
  }

  #receive(data: unknown): void {
    let frame: ServerFrame;
    try {
      frame = this.#options.codec.decode(data);
    } catch (error) {
      if (!(error instanceof NotAFrame)) throw error;
      this.#broken(error.message);
      return;
    }
    if (this.#isWelcome) this.#events.received(frame);
    else if (frame.type === "welcome") this.#welcomed(frame);
    else if (frame.type === "refused") this.#notWelcome(frame.code, frame.reason, frame.temporary);
  }

  #welcomed(welcome: Welcome): void {
    this.#callOff();
    this.#isWelcome = true;
    this.#failures = 0;
    this.#renewLater();
    this.#events.connected(welcome);
  }

  #notWelcome(code: string, reason: string, temporary: boolean): void {
    if (code === "unauthenticated") this.#fail(new BadToken(reason));
    else if (temporary) this.#broken(reason);
    else this.#fail(new Closed(`the server refused the connection: ${reason}`));
  }

  #closed(code: number, reason: string): void {
    const hasExpired = code === TOKEN_EXPIRED;
    const failure = failureOf(code, reason);
    if (failure && !(this.#options.tokens.isRenewable && hasExpired)) this.#fail(failure);
    else this.#broken(reason || `it ended (${code})`);
  }

  #broken(why: string): void {
    this.#end();
    this.#retry(new CannotConnect(`${this.#options.url}: ${why}`));
  }

  #retry(error: CannotConnect): void {
    if (!this.#isRunning) return;
    const { timing, platform } = this.#options;
    const pause = backoffMs(this.#failures++, timing, platform.chance());
    this.#callOff = platform.after(pause, () => void this.#connect());
    this.#events.unreachable(error);
  }

  #fail(error: ClientError): void {
    this.stop();
    this.#events.failed(error);
  }

  #end(): void {
    this.#attempt += 1;
    this.#callOff();
    this.#callOffRenewal();
    const [socket, wasWelcome] = [this.#socket, this.#isWelcome];
    this.#socket = null;
    this.#isWelcome = false;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      try {
        socket.close(NORMAL);
      } catch {
        // It is not open yet, or closed already.
      }
    }
    if (wasWelcome) this.#events.disconnected();
  }

  /** Send a new token each time before the last one expires. A refused one leaves the last as it is. */
  #renewLater(delayMs = this.#options.tokens.renewalMs()): void {
    this.#callOffRenewal();
    if (delayMs === null) return;
    const attempt = this.#attempt;
    this.#callOffRenewal = this.#options.platform.after(delayMs, async () => {
      let token: string;
      try {
        token = await this.#options.tokens.fresh();
      } catch {
        if (attempt === this.#attempt) this.#renewLater(RETRY_MS);
        return;
      }
      if (attempt !== this.#attempt) return;
      this.send([{ type: "refresh", token }]);
      this.#renewLater();
    });
  }
}

/** Why a client must not reconnect with the same token after this close code; null if it may. */
export function failureOf(code: number, reason: string): ClientError | null {
  if (MUST_LOG_IN.has(code)) return new BadToken(reason || "the token is not valid; log in again");
  const mayResume = code < 4100 || code > 4299 || code === HELLO_TIMEOUT;
  if (mayResume && code !== TOO_BIG) return null;
  return new Closed(`the server ended the connection for good: ${reason} (${code})`, code);
}
