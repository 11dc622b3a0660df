/** The positions of a log, as frames bring them. Pure. */

import type { Entry } from "../contract.js";

const KNOWN_KINDS = new Set(["message", "member", "chat", "edit", "delete", "reaction"]);

/**
 * A resolved position of the log. It has no `entry` if it is a void or of an unknown kind.
 *
 * `logged`: what the log has there, of any kind. `logHash`: the hash of the log with it, once resolved.
 */
export interface Slot {
  readonly sequence: number;
  readonly messageId: string | null;
  readonly entry: Entry | undefined;
  readonly logged: Entry | undefined;
  readonly logHash: Uint8Array | null;
}

/** Every position of a frame, ascending. */
export function slotsOf(entries: readonly Entry[], voids: readonly number[] = []): Slot[] {
  const slots: Slot[] = entries.map((entry) => ({
    sequence: entry.sequence,
    messageId: entry.message_id,
    entry: KNOWN_KINDS.has(entry.kind) ? entry : undefined,
    logged: entry,
    logHash: null,
  }));
  for (const sequence of voids) {
    slots.push({ sequence, messageId: null, entry: undefined, logged: undefined, logHash: null });
  }
  return slots.sort((first, second) => first.sequence - second.sequence);
}
