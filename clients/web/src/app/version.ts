/** Whether the server has newer pages than this one: it goes on, and offers to be loaded again. */

import type { Client } from "parley-chat";
import { isOld } from "./state.js";

const ASK_MS_MIN = 60_000;
const ENTRY = /<script type="module"[^>]* src="([^"]+)"/;

let askedAt = Number.NEGATIVE_INFINITY;

/** Look after each new connection: a server is updated while it is away. */
export function watchVersion(client: Client): void {
  if (client.isOnline) void look();
  client.on("connection", () => {
    if (client.isOnline && performance.now() - askedAt > ASK_MS_MIN) void look();
  });
}

async function look(): Promise<void> {
  askedAt = performance.now();
  const own = document.querySelector<HTMLScriptElement>('script[type="module"][src]');
  try {
    const answer = await fetch("/", { cache: "no-store" });
    const served = ENTRY.exec(await answer.text())?.[1];
    if (served && own && served !== own.getAttribute("src")) isOld.value = true;
  } catch {
    askedAt = Number.NEGATIVE_INFINITY;
  }
}
