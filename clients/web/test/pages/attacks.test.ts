/** What one person writes and another one's page shows: it stays text, whatever it is. */

import { createHash } from "node:crypto";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { CORPUS, nothingRan, watched } from "../../../ui/test/attacks.js";
import { online, openChat, type Somebody, World } from "./world.js";

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

test("what stands in dialogs, lists and notifications is text, too", async () => {
  const [tag = "", image = "", svg = "", breakout = ""] = CORPUS;
  const mal = await world.server.person("mal");
  await world.server.call(mal.token, "PATCH", "/v1/me", { display_name: svg, about: image });
  await world.server.call(ada.token, "PUT", `/v1/contacts/${mal.userId}`);
  await world.server.call(ada.token, "PUT", `/v1/blocks/${eve.userId}`);
  const group = await world.server.chat(mal, [ada], image);
  await world.server.say(mal, group, `@ada ${tag}`, { mentions: [ada.userId] });
  // A file whose name, and a device whose name, are attacks.
  const { attachment_id, upload_url } = await world.server.call<{
    attachment_id: string;
    upload_url: string;
  }>(mal.token, "POST", `/v1/chats/${group}/attachments`, {
    name: image,
    size: 5,
    content_type: "text/html",
    sha256: createHash("sha256").update("beans").digest("hex"),
  });
  const sent = await fetch(world.server.url + upload_url, {
    method: "PUT",
    headers: { "Content-Range": "bytes 0-4/5", "Content-Type": "application/octet-stream" },
    body: "beans",
  });
  expect(await sent.json()).toMatchObject({ received: 5 });
  await world.server.say(mal, group, "", { attachments: [attachment_id] });
  await world.server.call("", "POST", "/v1/sessions", {
    username: "ada",
    password: "a long password",
    device_id: "evil",
    device_name: breakout,
  });
  await world.server.call(ada.token, "PATCH", "/v1/me", { who_may_add: "nobody" });
  await world.server.chat(mal, [ada], svg);
  await world.server.call(ada.token, "PATCH", "/v1/me", { who_may_add: "everyone" });

  const page = await world.page();
  const seen = watched(page);
  await page.getByRole("textbox", { name: "Username" }).fill("ada");
  await page.getByLabel("Password", { exact: true }).fill("a long password");
  await page.getByRole("button", { name: "Sign in" }).click();
  await online(page);
  const go = async (hash: string, shown: string) => {
    await page.evaluate((to) => {
      location.hash = to;
    }, hash);
    await page.getByRole("main").getByText(shown).first().waitFor();
    await nothingRan(page, seen);
  };
  await go("#/invitations", svg);
  await go("#/contacts", svg);
  await page.getByRole("button", { name: "New chat" }).click();
  await page.getByRole("dialog", { name: "New chat" }).getByText(svg).waitFor();
  await nothingRan(page, seen);
  await page.keyboard.press("Escape");
  await go("#/settings", breakout);
  await go(`#/chat/${group}`, tag);
  await page.keyboard.press("Control+k");
  await page.getByRole("dialog", { name: "Find a chat" }).getByText(image).waitFor();
  await nothingRan(page, seen);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("button", { name: "Files of this chat" }).click();
  const files = page.getByRole("dialog", { name: "Files of this chat" });
  await files.getByRole("listitem").first().waitFor();
  await nothingRan(page, seen);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Close details" }).click();
  const said = page.getByRole("feed").getByRole("article").first();
  for (const [action, dialog] of [
    ["Message info", "Message info"],
    ["Report", "Report message?"],
  ] as const) {
    await said.hover();
    await page.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name: action, exact: true }).click();
    await page.getByRole("dialog", { name: dialog }).waitFor();
    await nothingRan(page, seen);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog", { name: dialog }).waitFor({ state: "detached" });
  }
  await said.hover();
  await page.getByRole("button", { name: "Reply", exact: true }).click();
  await page.getByRole("textbox", { name: "Message", exact: true }).pressSequentially("@m");
  await page.getByRole("listbox", { name: "Mentions" }).getByText(svg).waitFor();
  await nothingRan(page, seen);
  // What waits in the browser is shown again, and is text there, too.
  await page.getByRole("textbox", { name: "Message", exact: true }).fill(tag);
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("list", { name: "Chats" }).getByText(tag).first().waitFor();
  await nothingRan(page, seen);
});
