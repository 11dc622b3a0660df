/** Requests of the operator. What needs the password again asks for it, and goes on. */

import { signal } from "@preact/signals";
import { BadToken, CannotConnect, RequestRefused } from "parley-chat";
import { type Answer, type Given, Http, type Route } from "parley-chat/http";
import { thisPlatform } from "parley-chat/platform";
import { Tokens } from "parley-chat/tokens";
import { nextToken, provePassword } from "./session.js";

const platform = thisPlatform();
const http = new Http(location.origin, platform, new Tokens(nextToken, platform, "parley console"));

/** A request that waits for the password. */
export interface PasswordWish {
  /** It goes on. RequestRefused if the password is wrong: ask again. */
  prove(password: string): Promise<void>;
  /** It was refused. */
  giveUp(): void;
}

export const passwordWish = signal<PasswordWish | null>(null);

/**
 * `api("GET /v1/admin/chats/{chat_id}", { path: { chat_id } })`. RequestRefused, CannotConnect, or BadToken once the
 * session is over.
 */
export async function api<R extends Route>(
  route: R,
  ...given: Record<never, never> extends Given<R> ? [given?: Given<R>] : [given: Given<R>]
): Promise<Answer<R>> {
  try {
    return await call(route, given);
  } catch (error) {
    if (!(error instanceof RequestRefused) || error.code !== "password_needed") throw error;
    await provedPassword(error);
    return call(route, given);
  }
}

async function call<R extends Route>(route: R, given: unknown[]): Promise<Answer<R>> {
  try {
    return await (http.call as (route: R, ...given: unknown[]) => Promise<Answer<R>>).call(
      http,
      route,
      ...given,
    );
  } catch (error) {
    // A token function that failed says why: the session is over, or nobody answers.
    const cause = error instanceof CannotConnect ? error.cause : undefined;
    throw cause instanceof BadToken ? cause : error;
  }
}

/** Resolves once the password was given; throws the refusal if it never is. */
function provedPassword(refusal: RequestRefused): Promise<void> {
  passwordWish.value?.giveUp();
  return new Promise((resolve, reject) => {
    passwordWish.value = {
      async prove(password) {
        await provePassword(password);
        passwordWish.value = null;
        resolve();
      },
      giveUp() {
        passwordWish.value = null;
        reject(refusal);
      },
    };
  });
}
