/** How a page asks for its session. The long-lived secret is a cookie, which only these requests send. */

import { BadToken, CannotConnect, type Refusal, RequestRefused } from "parley-chat";
import { s } from "./strings.en.js";

export const SESSION = "/v1/web/session";
const MS_PER_SECOND = 1_000;

/** RequestRefused, BadToken once the session is over, or CannotConnect. */
export async function ask<Value>(method: string, path: string, body?: unknown): Promise<Value> {
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
  if (answer.status === 401 && path.startsWith(`${SESSION}/refresh`)) throw new BadToken(told.reason);
  throw new RequestRefused(told.retry_after_ms ? { ...refusal, retryAfterMs: told.retry_after_ms } : refusal);
}

/** Of this browser. `kind` says what for. */
export function newDeviceId(kind: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `${kind}-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
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

/** What to tell the person. */
export function reasonOf(error: unknown): string {
  if (error instanceof CannotConnect) return s.unreachable;
  if (!(error instanceof RequestRefused)) return error instanceof Error ? error.message : String(error);
  switch (error.code) {
    case "unauthenticated":
      return s.wrongPassword;
    case "account_disabled":
      return s.disabled;
    case "username_taken":
      return s.taken;
    case "rate_limited":
      return s.tooFast(Math.ceil((error.refusal.retryAfterMs ?? MS_PER_SECOND) / MS_PER_SECOND));
    default:
      return error.reason;
  }
}
