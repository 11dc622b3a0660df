/** What one person writes and another one's page shows: it stays text, whatever it is. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { CORPUS, nothingRan, watched } from "../../../ui/test/attacks.js";
import { openChat, type Somebody, World } from "./world.js";

let world: World;
let ada: Somebody;
let eve: Somebody;
beforeAll(async () => {
  world = await World.open();
  ada = await world.server.person("ada", "Ada");
  eve = await world.server.person("eve");
});
afterEach(() => world.leave());
afterAll(() => world.close());

test("messages, names, titles, reactions, files and searches are text", async () => {
  const page = await world.page();
  const seen = watched(page);
  await world.server.call(eve.token, "PATCH", "/v1/me", {
    display_name: CORPUS[0],
    about: CORPUS[1],
  });
  const group = await world.server.chat(eve, [ada], '<img src=x onerror="window.hacked=1">');
  let last = "";
  for (const text of CORPUS)
    last = (await world.server.say(eve, group, text, last ? { reply_to: last } : {})).message_id;
  await world.server
    .call(eve.token, "PUT", `/v1/chats/${group}/messages/${last}/reactions/${encodeURIComponent("<b>x</b>")}`)
    .catch(() => {});

  await page.getByRole("textbox", { name: "Username" }).fill("ada");
  await page.getByLabel("Password", { exact: true }).fill("a long password");
  await page.getByRole("button", { name: "Sign in" }).click();
  await openChat(page, '<img src=x onerror="window.hacked=1">');
  const feed = page.getByRole("feed");
  await feed
    .getByText(CORPUS[0] as string)
    .first()
    .waitFor();
  for (let step = 0; step < 12; step += 1) {
    await feed.hover();
    await page.mouse.wheel(0, 700);
    await page.waitForTimeout(30);
  }
  await nothingRan(page, seen);
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("list", { name: "Members" }).waitFor();
  await page.keyboard.press("Control+Shift+f");
  await page.getByRole("dialog", { name: "Search" }).getByRole("searchbox").fill("script");
  await page.getByRole("list", { name: "Results" }).getByRole("button").first().waitFor();
  await nothingRan(page, seen);
});

test("the cookie alone opens nothing, and no other site can use it", async () => {
  const page = await world.signedIn(ada);
  const cookies = await page.context().cookies();
  expect(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite])).toEqual([[true, "Strict"]]);
  expect(await page.evaluate(() => document.cookie)).toBe("");
  const alone = await page.evaluate(async () => (await fetch("/v1/me")).status);
  expect(alone).toBe(401);
});

test("no secret that lasts is where a script can read it", async () => {
  const page = await world.signedIn(ada);
  const kept = await page.evaluate(async () => {
    const texts = [
      document.cookie,
      JSON.stringify(localStorage),
      JSON.stringify(sessionStorage),
      location.href,
    ];
    for (const { name } of await indexedDB.databases()) {
      const db = await new Promise<IDBDatabase>((resolve, reject) => {
        const opening = indexedDB.open(name ?? "");
        opening.onsuccess = () => resolve(opening.result);
        opening.onerror = () => reject(opening.error);
      });
      for (const table of db.objectStoreNames) {
        const all = await new Promise((resolve) => {
          const asking = db.transaction(table).objectStore(table).getAll();
          asking.onsuccess = () => resolve(asking.result);
        });
        texts.push(JSON.stringify(all));
      }
      db.close();
    }
    for (const name of await caches.keys()) {
      for (const request of await (await caches.open(name)).keys()) texts.push(request.url);
    }
    return texts.join("\n");
  });
  expect(kept).not.toMatch(/prl_|password|access_token/);
  expect(kept).toContain(ada.userId);
});
