/** Everybody can use it: axe on every page, state and dialog; the keyboard alone; nothing said twice. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { serious, withAxe } from "../../../ui/test/axe.js";
import { message, openChat, type Somebody, until, World, write } from "./world.js";

let world: World;
let ada: Somebody;
let ben: Somebody;
beforeAll(async () => {
  world = await World.open();
  ada = await world.server.person("ada", "Ada");
  ben = await world.server.person("ben", "Ben");
  const group = await world.server.chat(ada, [ben], "Garden");
  const first = await world.server.say(ben, group, "Hello **all**, see https://a.example and `code`");
  await world.server.say(ben, group, "an answer", { reply_to: first.message_id });
  await world.server.say(ada, group, "mine");
});
afterEach(() => world.leave());
afterAll(() => world.close());

test("nothing serious at the door", async () => {
  const page = await withAxe(await world.page());
  expect(await serious(page)).toEqual([]);
  await page.getByRole("link", { name: "Create account" }).click();
  expect(await serious(page)).toEqual([]);
});

test("nothing serious in a conversation, and in what opens over it", async () => {
  const page = await withAxe(await world.signedIn(ada));
  expect(await serious(page)).toEqual([]);
  await openChat(page, "Garden");
  await message(page, "mine").waitFor();
  expect(await serious(page)).toEqual([]);
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("list", { name: "Members" }).getByRole("listitem").first().waitFor();
  expect(await serious(page)).toEqual([]);
  await page.getByRole("button", { name: "Close details" }).click();
  await message(page, "mine").hover();
  await page.getByRole("button", { name: "More", exact: true }).click();
  expect(await serious(page)).toEqual([]);
});

test.each([
  ["Control+k", "Find a chat"],
  ["Control+Shift+f", "Search"],
  ["Control+/", "Keyboard shortcuts"],
])("nothing serious in what %s opens, and the focus comes back", async (keys, name) => {
  const page = await withAxe(await world.signedIn(ada));
  await openChat(page, "Garden");
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  await field.focus();
  await page.keyboard.press(keys);
  await page.getByRole("dialog", { name }).waitFor();
  expect(await serious(page)).toEqual([]);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog", { name }).waitFor({ state: "detached" });
  expect(await page.evaluate(() => document.activeElement?.getAttribute("aria-label"))).toBe("Message");
});

test("Escape closes the search, whatever was written in it", async () => {
  const page = await world.signedIn(ada);
  await page.keyboard.press("Control+Shift+f");
  const search = page.getByRole("dialog", { name: "Search" });
  await search.getByRole("searchbox").fill("hello");
  await page.keyboard.press("Escape");
  await search.waitFor({ state: "detached" });
});

test.each(["settings", "invitations", "contacts", "blocked"])("nothing serious in %s", async (name) => {
  const page = await withAxe(await world.signedIn(ada));
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/${name}`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.waitForLoadState("networkidle");
  expect(await serious(page)).toEqual([]);
});

test("a chat is found, read, answered and left by keys alone", async () => {
  const page = await world.signedIn(ada);
  await page.keyboard.press("Control+k");
  await page.getByRole("dialog", { name: "Find a chat" }).waitFor();
  await page.keyboard.type("gard");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Garden", level: 1 }).waitFor();
  await message(page, "mine").waitFor();
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  await until(
    async () => {
      await page.keyboard.press("F6");
      return page.evaluate(() => document.activeElement?.tagName);
    },
    (tag) => tag === "ARTICLE",
  );
  await page.keyboard.press("ArrowUp");
  await until(
    () => page.evaluate(() => document.activeElement?.getAttribute("aria-label")),
    (name) => name === "Ben: an answer",
  );
  await page.keyboard.press("r");
  await page.getByRole("group", { name: "Replying to Ben" }).waitFor();
  expect(await field.evaluate((element) => element === document.activeElement)).toBe(true);
  await page.keyboard.type("by keys");
  await page.keyboard.press("Enter");
  await message(page, "by keys").waitFor();
  await page.keyboard.press("ArrowUp");
  await page.getByRole("group", { name: "Editing" }).waitFor();
  await page.keyboard.press("Escape");
  expect(await page.getByRole("group", { name: "Editing" }).count()).toBe(0);
});

test("what arrives is said once", async () => {
  const [one, other] = [await world.signedIn(ada), await world.signedIn(ben)];
  await openChat(one, "Garden");
  await openChat(other, "Garden");
  await message(one, "mine").waitFor();
  await message(other, "mine").waitFor();
  expect(await one.getByRole("log", { name: "New messages" }).textContent()).toBe("");
  await write(other, "news!");
  await until(
    () => one.getByRole("log", { name: "New messages" }).textContent(),
    (text) => text === "Ben: news!",
  );
});

test("from right to left, and at 320 pixels, nothing runs out of the page", async () => {
  const page = await world.signedIn(ada, { viewport: { width: 320, height: 640 } });
  await page.evaluate(() => {
    document.documentElement.dir = "rtl";
  });
  await openChat(page, "Garden");
  await message(page, "mine").waitFor();
  const wide = await page.evaluate(() =>
    [...document.querySelectorAll("body *")]
      .filter((element) => !element.closest(".sr") && element.checkVisibility())
      .filter(
        (element) =>
          element.getBoundingClientRect().right > innerWidth + 1 || element.getBoundingClientRect().left < -1,
      )
      .map((element) => element.outerHTML.slice(0, 120)),
  );
  expect(wide).toEqual([]);
});

test("nothing serious in the dialogs of a message", async () => {
  const page = await withAxe(await world.signedIn(ada));
  await openChat(page, "Garden");
  for (const [action, name] of [
    ["React", "Emoji"],
    ["Message info", "Message info"],
    ["Report", "Report message?"],
    ["Delete", "Delete message?"],
  ] as const) {
    await page.locator('article[data-sequence="2"]').hover();
    await page.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name: action, exact: true }).click();
    await page.getByRole("dialog", { name }).waitFor();
    expect(await serious(page), name).toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog", { name }).waitFor({ state: "detached" });
  }
});

test("nothing serious in what the details open, and in a new chat", async () => {
  const page = await withAxe(await world.signedIn(ada));
  await openChat(page, "Garden");
  await page.getByRole("button", { name: "Details" }).click();
  for (const name of ["Add people", "Go to date", "Files of this chat"]) {
    await page.getByRole("button", { name }).click();
    await page.getByRole("dialog", { name }).waitFor();
    expect(await serious(page), name).toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog", { name }).waitFor({ state: "detached" });
  }
  await page.getByRole("button", { name: "Leave chat" }).click();
  await page.getByRole("dialog", { name: "Leave chat?" }).waitFor();
  expect(await serious(page)).toEqual([]);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Close details" }).click();
  await page.getByRole("button", { name: "New chat" }).click();
  await page.getByRole("dialog", { name: "New chat" }).waitFor();
  expect(await serious(page)).toEqual([]);
});

test("nothing serious while something is written, and while nothing can be", async () => {
  const page = await withAxe(await world.signedIn(ada));
  await openChat(page, "Garden");
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  await field.pressSequentially("@b");
  await page.getByRole("listbox", { name: "Mentions" }).waitFor();
  expect(await serious(page)).toEqual([]);
  await field.fill("");
  await page.route(
    (url) => url.pathname.startsWith("/v1/uploads/"),
    (route) => route.abort("connectionreset"),
  );
  await page
    .locator('form input[type="file"][multiple]')
    .setInputFiles([
      { name: "a.bin", mimeType: "application/octet-stream", buffer: Buffer.alloc(9_000_000) },
    ]);
  await page.getByRole("progressbar").waitFor();
  await page.locator('article[data-sequence="2"]').hover();
  await page.getByRole("button", { name: "Reply", exact: true }).click();
  await page.getByRole("group", { name: "Replying to Ben" }).waitFor();
  expect(await serious(page)).toEqual([]);
  await page.getByRole("button", { name: "Cancel a.bin" }).click();
  const closed = await world.server.chat(ben, []).catch(() => world.server.chat(ben, [], "Closed"));
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/chat/${closed}`);
  await page.getByRole("button", { name: "Join chat" }).waitFor();
  expect(await serious(page)).toEqual([]);
  await page.context().setOffline(true);
  await world.server.kill();
  await page.locator('[role=status][data-state="offline"]').waitFor();
  expect(await serious(page)).toEqual([]);
});

test("the whole tour by keys: sign in, write, answer, react, look, search, settings, sign out", async () => {
  const page = await world.page();
  const named = (name: string | RegExp) =>
    until(
      () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? ""),
      (label) => (typeof name === "string" ? label === name : name.test(label)),
    );
  /** Tab until something has the focus, as somebody does who has no pointer. */
  const tabTo = async (name: string) => {
    for (let steps = 0; steps < 60; steps += 1) {
      await page.keyboard.press("Tab");
      const focused = await page.evaluate(() => {
        const element = document.activeElement as HTMLElement | null;
        return element?.getAttribute("aria-label") ?? element?.textContent?.trim() ?? "";
      });
      if (focused === name) return;
    }
    throw new Error(`nothing named ${name} is reached by Tab`);
  };
  await page.getByRole("textbox", { name: "Username" }).waitFor();
  await page.keyboard.type("ada");
  await page.keyboard.press("Tab");
  await page.keyboard.type("a long password");
  await page.keyboard.press("Enter");
  await page.getByRole("list", { name: "Chats" }).getByRole("link", { name: "Garden" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("dialog", { name: "Find a chat" }).waitFor();
  await page.keyboard.type("gard");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Garden", level: 1 }).waitFor();
  await message(page, "mine").waitFor();
  for (let steps = 0; steps < 6; steps += 1) {
    const label = await page.evaluate(() => document.activeElement?.getAttribute("aria-label"));
    if (label === "Message") break;
    await page.keyboard.press("F6");
  }
  await named("Message");
  await page.keyboard.type("typed by keys");
  await page.keyboard.press("Enter");
  await message(page, "typed by keys").waitFor();
  await page.keyboard.press("Shift+F6");
  await named(/^Ada: typed by keys/);
  await page.keyboard.press("+");
  await page.getByRole("dialog", { name: "Emoji" }).waitFor();
  await tabTo("🎉");
  await page.keyboard.press("Enter");
  await message(page, "typed by keys").getByRole("button", { name: "🎉, 1" }).waitFor();
  await named(/^Ada: typed by keys/);
  await page.keyboard.press("i");
  await page.getByRole("dialog", { name: "Message info" }).waitFor();
  await page.keyboard.press("Escape");
  await named(/^Ada: typed by keys/);
  await page.keyboard.press("Delete");
  await page.getByRole("dialog", { name: "Delete message?" }).waitFor();
  await tabTo("Delete");
  await page.keyboard.press("Enter");
  await page.locator('article[data-deleted="true"]').waitFor();
  await named(/^Ada: Message deleted/);
  await page.keyboard.press("Control+Shift+i");
  await page.getByRole("complementary", { name: "Details" }).waitFor();
  await page.keyboard.press("F6");
  await tabTo("Mute");
  await page.keyboard.press("Space");
  await until(
    () => page.getByRole("switch", { name: "Mute" }).getAttribute("aria-checked"),
    (on) => on === "true",
  );
  await page.keyboard.press("Space");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+Shift+f");
  await page.getByRole("dialog", { name: "Search" }).waitFor();
  await page.keyboard.type("answer");
  await page.getByRole("list", { name: "Results" }).getByRole("button").first().waitFor();
  await page.keyboard.press("Escape");
  await tabTo("Settings");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Settings" }).waitFor();
  await page.getByRole("list", { name: "Devices" }).getByRole("listitem").first().waitFor();
  await tabTo("Sign out");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /^Sign in to / }).waitFor();
});
