/** A list that comes in pages: what was opened stays open while it is asked for again. */

import { useMemo } from "preact/hooks";
import type { Feed } from "../app/feed.js";

export interface PagePart<Item> {
  readonly items: readonly Item[];
  readonly next: string | null;
}

interface Pages<Item> {
  load(): Promise<PagePart<Item>>;
  /** One more page, from now on. */
  more(feed: Feed<PagePart<Item>>): Promise<void>;
}

/** `load` asks for the page after a mark; the first one without. */
export function usePages<Item>(
  dependencies: readonly unknown[],
  load: (after: string) => Promise<PagePart<Item>>,
): Pages<Item> {
  return useMemo(() => {
    let count = 1;
    return {
      async load() {
        let found = await load("");
        // A page may be short although others follow: an empty one says nothing.
        for (let at = 1; found.next !== null && (at < count || found.items.length === 0); at += 1) {
          const further = await load(found.next);
          found = { items: [...found.items, ...further.items], next: further.next };
        }
        return found;
      },
      more(feed) {
        count += 1;
        return feed.reload();
      },
    };
  }, dependencies);
}
