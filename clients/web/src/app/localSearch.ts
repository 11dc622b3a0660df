/** Find messages in what this device has, while there is no server to ask. */

import type { Client, Entry } from "parley-chat";

const HITS_MAX = 30;
const STRETCH = 500;
/** Of each chat so many of the latest positions are looked at. */
const BACK_MAX = 10_000;

/** The newest messages of these chats with all of the words, newest first. */
export async function findHere(
  client: Client,
  chatIds: readonly string[],
  text: string,
  isLeft: () => boolean,
): Promise<Entry[]> {
  const words = folded(text).split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found: Entry[] = [];
  const known = await client.known();
  for (const chatId of chatIds) {
    const ranges = await known.ranges(chatId);
    const end = ranges.at(-1)?.[1] ?? 0;
    let ofChat = 0;
    for (let to = end; to > Math.max(0, end - BACK_MAX) && ofChat < HITS_MAX && !isLeft(); to -= STRETCH) {
      const { entries } = await known.read(chatId, Math.max(1, to - STRETCH + 1), to);
      for (const entry of entries.toReversed()) {
        if (entry.kind !== "message" || entry.deleted || ofChat === HITS_MAX) continue;
        const said = folded(entry.content);
        if (!words.every((word) => said.includes(word))) continue;
        found.push(entry);
        ofChat += 1;
      }
    }
    if (isLeft()) return [];
  }
  return found
    .sort((one, other) => Date.parse(other.created_at) - Date.parse(one.created_at))
    .slice(0, HITS_MAX);
}

const folded = (text: string) =>
  text
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLocaleLowerCase()
    .replace(/\*(?=\s|$)/g, "");
