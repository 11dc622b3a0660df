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

export class Tokens {
  readonly #given: string | TokenFunction;
  readonly #platform: Platform;
  #current: string;
  #asking: Promise<string> | null = null;

  constructor(given: string | TokenFunction, platform: Platform) {
    this.#given = given;
    this.#platform = platform;
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

  /** How long to wait before the next one is asked for; null if there is none, or no end is known. */
  renewalMs(): number | null {
    const endsAt = this.isRenewable ? expiryMs(this.#current) : null;
    if (endsAt === null) return null;
    const left = endsAt - this.#platform.wall();
    return Math.max(left - RENEW_MS_AHEAD, left / 2, RENEW_MS_MIN);
  }

  async #ask(): Promise<string> {
    if (typeof this.#given === "string") return this.#given;
    try {
      this.#current = await this.#given();
    } catch (error) {
      throw new CannotConnect("the application's token function failed", { cause: error });
    }
    return this.#current;
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
