/** The duties of docs/client-duties.md by their numbers, so that a test is named by the sentence that it shows. */

import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe } from "vitest";

const page = readFileSync(new URL("../../../../../docs/client-duties.md", import.meta.url), "utf8");

/** The first sentence of each duty, by its number. */
export const DUTIES: ReadonlyMap<number, string> = new Map(
  [...page.matchAll(/^(\d+)\. (?:\*\*(.+?)\*\*|([^.]+\.))/gms)].map(([, number, bold, plain]) => [
    Number(number),
    (bold ?? plain ?? "").replaceAll(/\s+/g, " ").replaceAll("`", ""),
  ]),
);

/** The scenarios that show a duty. */
export function duty(number: number, scenarios: () => void): void {
  const sentence = DUTIES.get(number);
  if (!sentence) throw new Error(`there is no duty ${number}`);
  describe(`${number}. ${sentence}`, scenarios);
}

/** What is drawn is the same in every run, and another in each of `make simulate`. */
export function seedProperties(): void {
  fc.configureGlobal({ seed: Number(process.env.PARLEY_SIMULATE_SEED || 1) | 0 });
}
