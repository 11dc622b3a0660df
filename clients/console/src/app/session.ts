/**
 * Who operates from this tab. The session's secret is a cookie that no script can read; beside it a refresh needs
 * the key that only this tab keeps. A token for ten minutes lives in the memory of the page.
 */

import { signal } from "@preact/signals";
import { BadToken, type PageSessionGranted, RequestRefused } from "parley-chat";
import { ask, deviceName, newDeviceId, SESSION } from "parley-ui/pageSession.js";

/** What the tab keeps over a reload. */
export interface Operator {
  readonly key: string;
  readonly username: string;
  readonly userId: string;
  readonly isReadOnly: boolean;
}

const PAGE = "?page=console";
const KEPT = "parley.console";
const LOCK = "parley console session";
const RENEW_MS_AHEAD = 30_000;
const MS_PER_SECOND = 1_000;

/** Null: nobody is signed in. */
export const operator = signal<Operator | null>(remembered());
/** The session ended by itself: what is shown stays, behind a dialog. */
export const isOver = signal(false);

let token = "";
/** The last one that was handed out. */
let given = "";
let endsAt = 0;
let wasActive = true;

for (const name of ["pointerdown", "keydown", "wheel"]) {
  addEventListener(
    name,
    () => {
      wasActive = true;
    },
    { passive: true, capture: true },
  );
}

/** RequestRefused as `forbidden` if this is no operator, or CannotConnect. */
export async function signIn(username: string, password: string, isReadOnly: boolean): Promise<void> {
  const body = {
    username,
    password,
    device_id: newDeviceId("console"),
    device_name: `${deviceName()}, console`,
    read_only: isReadOnly,
  };
  const granted = await ask<PageSessionGranted>("POST", SESSION + PAGE, body);
  note(granted);
  const { key = "", user_id: userId, read_only } = granted;
  keep({ key, username, userId, isReadOnly: read_only });
  isOver.value = false;
}

/** Another token than the one before, good for a while. BadToken once the session is over. */
export async function nextToken(): Promise<string> {
  if (token === given || endsAt - Date.now() < RENEW_MS_AHEAD) await alone(() => refresh({}));
  given = token;
  return token;
}

/** Prove once more who is here, for what cannot be undone. RequestRefused if it is the wrong password. */
export function provePassword(password: string): Promise<void> {
  return alone(() => refresh({ password }));
}

export async function signOut(): Promise<void> {
  await ask("DELETE", SESSION + PAGE).catch(() => {});
  token = "";
  isOver.value = false;
  keep(null);
}

async function refresh(more: { readonly password?: string }): Promise<void> {
  const key = operator.value?.key;
  if (!key) throw over();
  const isActive = wasActive;
  wasActive = false;
  try {
    note(
      await ask<PageSessionGranted>("POST", `${SESSION}/refresh${PAGE}`, { key, active: isActive, ...more }),
    );
  } catch (error) {
    wasActive ||= isActive;
    if (!(error instanceof BadToken)) throw error;
    if (more.password === undefined) throw over();
    // The same status says that the session is over: what a refresh without a password answers, tells.
    await refresh({});
    throw new RequestRefused({ code: "unauthenticated", reason: error.message, temporary: false });
  }
}

function over(): BadToken {
  token = "";
  isOver.value = operator.value !== null;
  return new BadToken("the session is over");
}

function note(granted: PageSessionGranted): void {
  token = granted.access_token;
  endsAt = Date.now() + granted.expires_in * MS_PER_SECOND;
}

function keep(next: Operator | null): void {
  operator.value = next;
  try {
    if (next) sessionStorage.setItem(KEPT, JSON.stringify(next));
    else sessionStorage.removeItem(KEPT);
  } catch {
    // It lives as long as the page.
  }
}

function remembered(): Operator | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
    return typeof found?.key === "string" && typeof found?.username === "string" ? found : null;
  } catch {
    return null;
  }
}

/** One tab at a time: each use of the cookie changes it. */
async function alone<Value>(run: () => Promise<Value>): Promise<Value> {
  if (!navigator.locks) return run();
  return navigator.locks.request(LOCK, run) as Promise<Value>;
}
