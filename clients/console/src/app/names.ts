/** Who an id is. Asked for once, many at a time. */

import { signal } from "@preact/signals";
import type { Profile, ProfileList } from "parley-chat";
import { useEffect } from "preact/hooks";
import { api } from "./api.js";

const AT_ONCE = 100;

const known = signal<ReadonlyMap<string, string>>(new Map());
const asked = new Set<string>();

/** What the person is called; the id until that is known, and where nobody knows. */
export const nameOf = (userId: string): string => known.value.get(userId) ?? userId;

/** Names of these people, once they have come. */
export function useNames(userIds: readonly string[]): void {
  const key = [...new Set(userIds)].sort().join(",");
  useEffect(() => {
    const unknown = key.split(",").filter((id) => id && !asked.has(id));
    for (let at = 0; at < unknown.length; at += AT_ONCE) void ask(unknown.slice(at, at + AT_ONCE));
  }, [key]);
}

async function ask(ids: readonly string[]): Promise<void> {
  for (const id of ids) asked.add(id);
  try {
    const answer = (await api("GET /v1/users", { query: { ids } })) as Profile | ProfileList;
    if (!("users" in answer)) return;
    const next = new Map(known.value);
    for (const one of answer.users) next.set(one.user_id, one.display_name || one.username);
    known.value = next;
  } catch {
    for (const id of ids) asked.delete(id);
  }
}
