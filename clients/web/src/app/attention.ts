/**
 * Whether somebody looks at the chat in any tab of this browser: while nobody does, other devices ring.
 *
 * A tab that is looked at holds a lock that others share; each tab says what all of them are.
 */

import type { Client } from "parley-chat";

const LOCK = "parley looking";
const CHANNEL = "parley looking";

/** Returns what ends it. */
export function watchAttention(client: Client): () => void {
  const ended = new AbortController();
  const channel = globalThis.BroadcastChannel ? new BroadcastChannel(CHANNEL) : null;
  let release: (() => void) | null = null;

  const tell = async () => {
    if (client.failure) return;
    const held = await navigator.locks?.query();
    const isLookedAt = held ? (held.held ?? []).some(({ name }) => name === LOCK) : isOwnLookedAt();
    if (!client.failure) client.look(isLookedAt);
  };
  const look = async () => {
    const isLookedAt = isOwnLookedAt();
    if (isLookedAt && !release) await hold();
    else if (!isLookedAt && release) {
      release();
      release = null;
      // The lock is free once its promise has been seen to end.
      await navigator.locks?.query();
    }
    await tell();
    channel?.postMessage("changed");
  };
  const hold = async () => {
    if (!navigator.locks) return;
    await new Promise<void>((isHeld) => {
      void navigator.locks.request(LOCK, { mode: "shared" }, () => {
        const ends = new Promise<void>((resolve) => {
          release = resolve;
        });
        isHeld();
        return ends;
      });
    });
  };

  const { signal } = ended;
  document.addEventListener("visibilitychange", () => void look(), { signal });
  addEventListener("focus", () => void look(), { signal });
  addEventListener("blur", () => void look(), { signal });
  if (channel) channel.onmessage = () => void tell();
  void look();
  return () => {
    ended.abort();
    release?.();
    channel?.close();
  };
}

const isOwnLookedAt = () => document.visibilityState === "visible" && document.hasFocus();
