/** The token of a client: one that was given, or a function that gets them from the application's login. */

import { CannotConnect } from "./core/errors.js";
import type { Platform } from "./platform.js";

/** Returns a token that is good for some time. Called before each connection, and before a token expires. */
export type TokenFunction = () => Promise<string>;

/** A token is renewed so long before it expires, or after half of its time if that is shorter. */
const RENEW_MS_AHEAD = 60_000;
/** A function that returns the same token again and again is not asked without a pause. */
const RENEW_MS_MIN = 1_000;
export const RETRY_MS = 5_000;
/** A function that does not answer has failed: a request that never ends must not keep the client offline. */
const ANSWER_MS_MAX = 30_000;
/** So long a tab waits for its turn. Another one may be frozen while it has it. */
const TURN_MS_MAX = 10_000;

export class Tokens {
  readonly #given: string | TokenFunction;
  readonly #platform: Platform;
  readonly #lock: string;
  #current: string;
  #asking: Promise<string> | null = null;

  /** `name` is that of the device: its tabs ask one after the other. */
  constructor(given: string | TokenFunction, platform: Platform, name: string) {
    this.#given = given;
    this.#platform = platform;
    this.#lock = `${name} token`;
    this.#current = typeof given === "string" ? given : "";
  }

  /** Whether there is a function to ask. */
  get isRenewable(): boolean {
    return typeof this.#given !== "string";
  }

  /** A new one. Several calls at once ask once. CannotConnect if the function fails: it may work later. */
  fresh(): Promise<string> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  /** One for a request over HTTP: the last one, unless it has run out. */
  async usable(): Promise<string> {
    const endsAt = expiryMs(this.#current);
    const isOver = !this.#current || (endsAt !== null && endsAt <= this.#platform.wall());
    return isOver && this.isRenewable ? this.fresh() : this.#current;
  }

  /** Another one than this, which was refused: that of a call that has asked since, or a new one. */
  async another(refused: string | null): Promise<string> {
    return this.#current !== refused ? this.#current : this.fresh();
  }

  /** How long to wait before the next one is asked for; null if there is none, or no end is known. */
  renewalMs(): number | null {
    const endsAt = this.isRenewable ? expiryMs(this.#current) : null;
    if (endsAt === null) return null;
    const left = endsAt - this.#platform.wall();
    return Math.max(left - RENEW_MS_AHEAD, left / 2, RENEW_MS_MIN);
  }

  async #ask(): Promise<string> {
    const given = this.#given;
    if (typeof given === "string") return given;
    try {
      this.#current = await this.#inTurn(async () => this.#inTime(given()));
    } catch (error) {
      throw new CannotConnect("the application's token function failed", { cause: error });
    }
    return this.#current;
  }

  /** A login that exchanges a secret for a new one must not be asked by two tabs at once. */
  async #inTurn(ask: TokenFunction): Promise<string> {
    const { locks } = this.#platform;
    if (!locks) return ask();
    const waits = new AbortController();
    const callOff = this.#platform.after(TURN_MS_MAX, () => waits.abort());
    const asked = locks.request(this.#lock, { signal: waits.signal }, () => {
      callOff();
      return ask();
    });
    return (asked as Promise<string>).catch((error) => {
      if (waits.signal.aborted) return ask();
      throw error;
    });
  }

  #inTime(asked: Promise<string>): Promise<string> {
    return new Promise((resolve, reject) => {
      const late = () => reject(new Error("it did not answer in time"));
      const callOff = this.#platform.after(ANSWER_MS_MAX, late);
      asked.then(resolve, reject).finally(callOff);
    });
  }
}

/** When a JSON Web Token expires, by its own words; null if it is none. */
export function expiryMs(token: string): number | null {
  const payload = token.split(".")[1];
  if (!payload || token.split(".").length !== 3) return null;
  try {
    const { exp } = JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/")));
    return typeof exp === "number" ? exp * 1000 : null;
  } catch {
    return null;
  }
}
