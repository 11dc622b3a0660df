import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { DUTIES } from "./duty.js";

test("every duty of the page has its scenarios", () => {
  const folder = new URL("./", import.meta.url);
  const texts = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), "utf8"));
  const shown = [...texts.join().matchAll(/^duty\((\d+),/gm)].map(([, number]) => Number(number));
  expect(shown.sort((one, other) => one - other)).toEqual([...DUTIES.keys()]);
  expect(DUTIES.size).toBe(22);
});
