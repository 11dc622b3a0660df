/** Requests over HTTP, typed by the table of routes. Errors say what to do next. */

import type { Problem, Routes } from "./contract.js";
import { BadToken, CannotConnect, permanent, RequestRefused, refusalOf } from "./core/errors.js";
import type { Platform } from "./platform.js";
import type { Tokens } from "./tokens.js";

const HTTP_MS_MAX = 30_000;
const UNAUTHENTICATED = 401;
const TOO_LARGE = 413;
const NOT_JSON = Symbol("not JSON");

export type Route = keyof Routes;
export type Answer<R extends Route> = Routes[R]["answers"][keyof Routes[R]["answers"]];

type Part<Name extends string, Value> = [Value] extends [undefined]
  ? unknown
  : Record<never, never> extends Value
    ? { readonly [N in Name]?: Value }
    : { readonly [N in Name]: Value };

/** What a route needs: the parts of its path, its query and its body, where it has them. */
export type Given<R extends Route> = Part<"path", Routes[R]["path"]> &
  Part<"query", Routes[R]["query"]> &
  Part<"body", Routes[R]["body"]>;

type Arguments<R extends Route> =
  Record<never, never> extends Given<R> ? [given?: Given<R>] : [given: Given<R>];

type Parts = {
  readonly path?: Readonly<Record<string, string | number>>;
  readonly query?: Readonly<Record<string, string | number | readonly string[] | undefined>>;
  readonly body?: unknown;
};

/** Requests of one person. RequestRefused, BadToken or CannotConnect when one fails. */
export class Http {
  readonly url: string;
  readonly #platform: Platform;
  readonly #tokens: Tokens | null;

  constructor(url: string, platform: Platform, tokens: Tokens | null) {
    this.url = baseUrl(url);
    this.#platform = platform;
    this.#tokens = tokens;
  }

  /** `http.call("GET /v1/chats/{chat_id}", { path: { chat_id } })` */
  async call<R extends Route>(route: R, ...[given]: Arguments<R>): Promise<Answer<R>> {
    const [method, address] = addressOf(route, (given ?? {}) as Parts);
    const body = (given as Parts | undefined)?.body;
    const init: RequestInit = { method };
    if (body !== undefined) init.body = JSON.stringify(body);
    const token = this.#tokens && (await this.#tokens.usable());
    let [status, text] = await this.#exchange(address, init, token);
    if (status === UNAUTHENTICATED && this.#tokens?.isRenewable) {
      [status, text] = await this.#exchange(address, init, await this.#tokens.another(token));
    }
    const told = parsed(text);
    if (status >= 400) throw this.refused(status, told);
    if (told === NOT_JSON) throw new CannotConnect(`${this.url} is not a Parley server`);
    return told as Answer<R>;
  }

  async #exchange(address: string, init: RequestInit, token: string | null): Promise<[number, string]> {
    const headers: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
    if (init.body !== undefined) headers["Content-Type"] = "application/json";
    const late = new AbortController();
    const callOff = this.#platform.after(HTTP_MS_MAX, () => late.abort());
    try {
      const answer = await this.fetch(address, { ...init, headers, signal: late.signal });
      return [answer.status, await answer.text()];
    } catch (error) {
      throw error instanceof CannotConnect
        ? error
        : new CannotConnect(`${this.url} broke off`, { cause: error });
    } finally {
      callOff();
    }
  }

  /** @internal Whatever the server answers. */
  async fetch(address: string, init: RequestInit): Promise<Response> {
    try {
      return await this.#platform.fetch(this.url + address, init);
    } catch (error) {
      throw new CannotConnect(`cannot reach ${this.url}; is the server running?`, { cause: error });
    }
  }

  /** @internal What a refusal means. */
  refused(status: number, told: unknown): Error {
    if (!isProblem(told)) {
      if (status !== TOO_LARGE) return new CannotConnect(`${this.url} is not a Parley server (${status})`);
      const reason = `a proxy before ${this.url} takes no request of this size`;
      return new RequestRefused(permanent("too_large", reason));
    }
    if (status === UNAUTHENTICATED && this.#tokens) return new BadToken(told.reason);
    return new RequestRefused(refusalOf(told));
  }
}

/** The server's address without a trailing slash. ws:// addresses are accepted, too. */
export function baseUrl(url: string): string {
  const found = /^(http|ws)(s?):\/\/(.+?)\/*$/.exec(url);
  if (!found) {
    throw new CannotConnect(`"${url}" is not the address of a server; an example is http://127.0.0.1:8080`);
  }
  return `http${found[2]}://${found[3]}`;
}

function addressOf(route: string, { path = {}, query = {} }: Parts): [string, string] {
  const [method = "", template = ""] = route.split(" ");
  const address = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(path[name])));
  const asked = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)]],
  );
  const search = new URLSearchParams(asked as [string, string][]).toString();
  return [method, search ? `${address}?${search}` : address];
}

/** What an answer says. */
export function parsed(text: string): unknown {
  try {
    return text ? JSON.parse(text) : undefined;
  } catch {
    return NOT_JSON;
  }
}

function isProblem(told: unknown): told is Problem {
  return typeof told === "object" && told !== null && "code" in told && "reason" in told;
}
