/** Lists that the server gives in pages. */

/** Every element of a list that comes in pages. */
export async function allPages<Page, Item>(
  load: (after: string | undefined) => Promise<Page>,
  items: (page: Page) => readonly Item[],
  next: (page: Page) => string | null,
): Promise<Item[]> {
  const found: Item[] = [];
  let after: string | undefined;
  for (;;) {
    const page = await load(after);
    found.push(...items(page));
    const following = next(page);
    if (following === null) return found;
    after = following;
  }
}

/** A query without what is undefined. */
export function given<Query extends object>(
  query: { [Name in keyof Query]: Query[Name] | undefined },
): Query {
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined)) as Query;
}
