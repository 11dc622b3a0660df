/**
 * Who is signed in on this device. The long-lived secret is a cookie that no script can read; a short-lived token
 * lives in the memory of the page.
 */

import { BadToken, CannotConnect, type PageSessionGranted, type Refusal, RequestRefused } from "parley-chat";
import { keep, kept } from "./kept.js";

/** What a page knows before the server has answered. No secret. */
export interface Person {
  readonly userId: string;
  readonly username: string;
  readonly deviceId: string;
}

const SESSION = "/v1/web/session";
const LOCK = "parley session";
/** A token is renewed so long before it ends. */
const RENEW_MS_AHEAD = 30_000;

let token = "";
let endsAt = 0;

export const origin = () => location.origin;

export function knownPerson(): Person | null {
  try {
    const found = JSON.parse(kept("person") ?? "null");
    return typeof found?.userId === "string" && typeof found?.deviceId === "string" ? found : null;
  } catch {
    return null;
  }
}

/** The person is signed in once this resolves. RequestRefused, or CannotConnect. */
export async function signIn(username: string, password: string): Promise<Person> {
  const deviceId = kept("device") ?? newDeviceId();
  keep("device", deviceId);
  const body = { username, password, device_id: deviceId, device_name: deviceName() };
  return remember(await ask<PageSessionGranted>("POST", SESSION, body), username, deviceId);
}

/** A token that is good for a while. BadToken once the session is over. */
export async function freshToken(): Promise<string> {
  if (token && endsAt - Date.now() > RENEW_MS_AHEAD) return token;
  if (!knownPerson()) throw new BadToken("the session is over");
  return alone(async () => {
    const granted = await ask<PageSessionGranted>("POST", `${SESSION}/refresh`, {});
    noteToken(granted);
    return token;
  });
}

/** The token was refused: the next one is another. */
export function forgetToken(): void {
  token = "";
}

/** End the session of this device, here and on the server. */
export async function signOut(): Promise<void> {
  forget();
  await ask("DELETE", SESSION).catch(() => {});
}

/** The session is over: nothing of it stays. */
export function forget(): void {
  keep("person", null);
  token = "";
}

function remember(granted: PageSessionGranted, username: string, deviceId: string): Person {
  noteToken(granted);
  const person = { userId: granted.user_id, username, deviceId };
  keep("person", JSON.stringify(person));
  return person;
}

function noteToken(granted: PageSessionGranted): void {
  token = granted.access_token;
  endsAt = Date.now() + granted.expires_in * 1000;
}

/** One tab at a time: each use of the cookie changes it. */
async function alone<Value>(run: () => Promise<Value>): Promise<Value> {
  if (!navigator.locks) return run();
  return navigator.locks.request(LOCK, run) as Promise<Value>;
}

async function ask<Value>(method: string, path: string, body?: unknown): Promise<Value> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers: { "Content-Type": "application/json", "Parley-Page": "1" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    throw new CannotConnect("cannot reach the server", { cause: error });
  }
  if (answer.ok) return (answer.status === 204 ? undefined : await answer.json()) as Value;
  const told = await answer.json().catch(() => null);
  if (typeof told?.code !== "string") throw new CannotConnect(`HTTP status ${answer.status}`);
  const refusal: Refusal = { code: told.code, reason: told.reason, temporary: told.temporary };
  if (answer.status === 401 && path.endsWith("/refresh")) throw new BadToken(told.reason);
  throw new RequestRefused(told.retry_after_ms ? { ...refusal, retryAfterMs: told.retry_after_ms } : refusal);
}

function newDeviceId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `web-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

const BROWSERS: readonly (readonly [RegExp, string])[] = [
  [/Edg\//, "Edge"],
  [/OPR\//, "Opera"],
  [/Firefox\//, "Firefox"],
  [/Chrom(e|ium)\//, "Chrome"],
  [/Safari\//, "Safari"],
];
const SYSTEMS: readonly (readonly [RegExp, string])[] = [
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Windows/, "Windows"],
  [/Mac OS/, "macOS"],
  [/CrOS/, "ChromeOS"],
  [/Linux/, "Linux"],
];

/** What people call this device in a list: "Chrome on Linux". */
export function deviceName(agent = navigator.userAgent): string {
  const named = (names: typeof BROWSERS) => names.find(([pattern]) => pattern.test(agent))?.[1];
  return [named(BROWSERS) ?? "Browser", named(SYSTEMS)].filter(Boolean).join(" on ");
}
