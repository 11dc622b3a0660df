/**
 * Who is signed in on this device. The long-lived secret is a cookie that no script can read; a short-lived token
 * lives in the memory of the page.
 */

import { BadToken, type PageSessionGranted } from "parley-chat";
import { keep, kept } from "parley-ui/kept.js";
import { ask, deviceName, newDeviceId, SESSION } from "parley-ui/pageSession.js";

/** What a page knows before the server has answered. No secret. */
export interface Person {
  readonly userId: string;
  readonly username: string;
  readonly deviceId: string;
}

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
  const deviceId = kept("device") ?? newDeviceId("web");
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
