import { readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { bundled, gzipped, KB, weights } from "./bundle.js";

/** The most that an entry may weigh, gzipped, with everything that it imports at once. */
const ENTRY_BYTES_MAX = {
  "parley-chat": 20 * KB,
  "parley-chat/files": 4 * KB,
  "parley-chat/operators": 4 * KB,
  "parley-chat/push": 1 * KB,
  "parley-chat/msgpack": 8 * KB,
  "parley-chat/react": 3 * KB,
};
const APPLICATION_BYTES_MAX = 20 * KB;

/** What a page loads behind that: loops, windows, open chats, requests. */
const LATER_BYTES_MAX = 15 * KB;

const PAGE = readFileSync(new URL("../../../../docs/sdk-typescript.md", import.meta.url), "utf8");
/** A figure of the page is rounded, and stays true for small changes. */
const FIGURE_KB_OFF_MAX = 0.2;

/** For one small thing out of a large entry. */
const SMALL_BYTES_MAX = KB / 2;

const APPLICATION = `
  import { connect } from "parley-chat";
  const me = await connect("https://chat.example", () => fetch("/token").then((answer) => answer.text()));
  me.chat("chat_1").send("hi");
`;

describe("what travels", () => {
  test.each(Object.entries(ENTRY_BYTES_MAX))("%s is small", async (entry, most) => {
    const { atOnce } = await weights(`export * from ${JSON.stringify(entry)}`);
    expect(atOnce).toBeGreaterThan(0);
    expect(atOnce).toBeLessThan(most);
  });

  test("an application that connects and sends is small", async () => {
    expect(await bundled(APPLICATION)).toContain("https://chat.example");
    expect((await weights(APPLICATION)).atOnce).toBeLessThan(APPLICATION_BYTES_MAX);
  });

  test("what comes later is small, too, and is not there at once", async () => {
    const { later } = await weights(APPLICATION);
    expect(later).toBeGreaterThan(0);
    expect(later).toBeLessThan(LATER_BYTES_MAX);
  });

  test("the page of the SDK says what each weighs, and its limit", async () => {
    const measured: [string, number, number][] = [];
    for (const [entry, most] of Object.entries(ENTRY_BYTES_MAX)) {
      const { atOnce } = await weights(`export * from ${JSON.stringify(entry)}`);
      measured.push([entry === "parley-chat" ? `\`${entry}\`, at once` : `\`${entry}\``, atOnce, most]);
    }
    const application = await weights(APPLICATION);
    measured.push([
      "an application that connects and sends, at once",
      application.atOnce,
      APPLICATION_BYTES_MAX,
    ]);
    measured.push(["what either loads behind that", application.later, LATER_BYTES_MAX]);
    const rows = [...PAGE.matchAll(/^\| (.+) \| ([\d.]+) \| (\d+) \|$/gm)];
    const said = new Map(rows.map(([, name, kb, limit]) => [name, [Number(kb), Number(limit)]]));
    for (const [name, bytes, most] of measured) {
      const [kb = 0, limit = 0] = said.get(name) ?? [];
      expect(Math.abs(kb - bytes / KB), `${name}: ${(bytes / KB).toFixed(2)}`).toBeLessThan(
        FIGURE_KB_OFF_MAX,
      );
      expect(limit).toBe(most / KB);
    }
  });

  test("a bundle has of an entry what it uses", async () => {
    const code = await bundled('import { Closed } from "parley-chat"; alert(new Closed("gone"));');
    expect(gzipped(code)).toBeLessThan(SMALL_BYTES_MAX);
  });

  test.each([...Object.keys(ENTRY_BYTES_MAX), "parley-chat/testing"])(
    "importing %s does nothing",
    async (entry) => {
      const code = await bundled(`import * as all from ${JSON.stringify(entry)}; [].concat(all)`, "iife");
      const page = createContext({ TextEncoder, TextDecoder, require: () => ({}) });
      const before = Object.keys(page);
      runInContext(code, page);
      expect(Object.keys(page)).toEqual(before);
    },
  );
});
