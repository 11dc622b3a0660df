/** Pictures of every page and state, light and dark, wide and narrow: `make screenshots`. */

import { mkdirSync } from "node:fs";
import type { Page } from "playwright-core";
import { test } from "vitest";
import { message, openChat, PASSWORD, type Somebody, until, World, write } from "../pages/world.js";

const FOLDER = process.env.SCREENSHOTS ?? "screenshots";
const ONLY = process.env.ONLY ?? "";
const SIZES = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } };
const THEMES = ["light", "dark"] as const;

async function shoot(page: Page, name: string): Promise<void> {
  if (ONLY && !name.includes(ONLY)) return;
  for (const [size, viewport] of Object.entries(SIZES)) {
    await page.setViewportSize(viewport);
    for (const colorScheme of THEMES) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.evaluate(
        () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
      );
      await page.waitForTimeout(250);
      await page.screenshot({ path: `${FOLDER}/${name}-${size}-${colorScheme}.png` });
    }
  }
  await page.setViewportSize(SIZES.wide);
}

interface Scene {
  readonly ada: Somebody;
  readonly ben: Somebody;
  readonly group: string;
  readonly direct: string;
}

async function stage({ server }: World): Promise<Scene> {
  const ada = await server.person("ada", "Ada Lovelace");
  const ben = await server.person("ben", "Ben Okafor");
  const cleo = await server.person("cleo", "Cléo Martin");
  const dai = await server.person("dai", "戴小雨");
  const omar = await server.person("omar", "عمر حداد");
  const direct = await server.chat(ben, [ada]);
  await server.chat(ada, [dai]).then((chat) => server.say(dai, chat, "好的,明天见 👋"));
  await server
    .chat(omar, [ada])
    .then((chat) => server.say(omar, chat, "صباح الخير! هل الاجتماع في التاسعة؟"));
  const release = await server.chat(cleo, [ada, ben], "Release 2.0");
  await server.say(cleo, release, "Tagging at noon. `make release` is green on all three engines ✅");
  const group = await server.chat(ada, [ben, cleo, dai], "Kitchen garden");
  const lines: readonly (readonly [Somebody, string])[] = [
    [
      ben,
      "Morning! Who is around this weekend? The **tomatoes** need staking and the beans are climbing into the neighbours' hedge.",
    ],
    [cleo, "I am. I can bring the old fence posts."],
    [cleo, "Also: the compost delivery is on Saturday, https://compost.example/orders/1204"],
    [ada, "Perfect. I made a list:\n1. stakes\n2. twine\n3. *the good* secateurs"],
    [dai, "I have twine!"],
    [
      ben,
      "@ada can you check the water meter? Last month it said\n```\n2026-10-01  1 204 m³\n2026-11-01  1 219 m³\n```",
    ],
    [ada, "Will do tomorrow morning before work."],
    [dai, "🌱"],
  ];
  const said = [];
  for (const [who, text] of lines) {
    said.push(await server.say(who, group, text, text.includes("@ada") ? { mentions: [ada.userId] } : {}));
  }
  await server.say(cleo, group, "You are a star.", { reply_to: said.at(-2)?.message_id });
  for (const [who, text] of [
    [ada, "Did you see the forecast?"],
    [ben, "Rain until Thursday, then sun. I moved the barbecue to Saturday."],
    [ada, "Then I bring the salad 🥗"],
    [ben, "And I the grill. See you at six?"],
  ] as const) {
    await server.say(who, direct, text);
  }
  return { ada, ben, group, direct };
}

async function act(page: Page, text: string, emoji: string): Promise<void> {
  await message(page, text).first().hover();
  await page.getByRole("button", { name: "React", exact: true }).click();
  await page
    .getByRole("dialog", { name: "Emoji" })
    .getByRole("button", { name: emoji, exact: true })
    .first()
    .click();
  await message(page, text)
    .getByRole("button", { name: `${emoji}, 1` })
    .waitFor();
}

const go = (page: Page, hash: string) =>
  page.evaluate((to) => {
    location.hash = to;
  }, hash);

/** States that are seen seldom. */
async function rarer(world: World, page: Page, { ada, ben, group, direct }: Scene): Promise<void> {
  const { server } = world;
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  await field.fill("Ask @");
  await field.press("End");
  await field.pressSequentially("c");
  await page.getByRole("listbox", { name: "Mentions" }).waitFor();
  await shoot(page, "mentions");
  await field.fill("Good :tom");
  await field.press("a");
  await page.getByRole("listbox", { name: "Emoji" }).waitFor();
  await shoot(page, "emoji-completed");
  await field.fill("");
  await page.getByRole("button", { name: "Emoji", exact: true }).click();
  await page.getByRole("dialog", { name: "Emoji" }).getByText("Smileys").waitFor();
  await shoot(page, "emoji");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("button", { name: "Files of this chat" }).click();
  await page.getByRole("dialog", { name: "Files of this chat" }).getByText("plan.pdf").waitFor();
  await shoot(page, "files");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Go to date" }).click();
  await shoot(page, "go-to-date");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Close details" }).click();

  await page.route(
    (url) => url.pathname.startsWith("/v1/uploads/"),
    (route) => route.abort("connectionreset"),
  );
  await page
    .locator('form input[type="file"][multiple]')
    .setInputFiles([{ name: "harvest.mp4", mimeType: "video/mp4", buffer: Buffer.alloc(9_000_000, 1) }]);
  await page.getByRole("progressbar").waitFor();
  await shoot(page, "uploading");
  await page.getByRole("button", { name: /^Cancel harvest/ }).click();

  await message(page, "Perfect. I made a list").hover();
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog", { name: "Delete message?" }).waitFor();
  await shoot(page, "delete");
  await page.keyboard.press("Escape");

  await page.evaluate(() => {
    document.documentElement.dir = "rtl";
  });
  await shoot(page, "right-to-left");
  await page.evaluate(() => {
    document.documentElement.dir = "ltr";
  });

  await server.call(ada.token, "PUT", `/v1/blocks/${ben.userId}`);
  await page.reload();
  await go(page, `#/chat/${direct}`);
  await page.getByText("You have blocked Ben").waitFor();
  await shoot(page, "blocked-chat");
  await go(page, "#/blocked");
  await page.getByRole("list", { name: "Blocked people" }).getByText("Ben Okafor").waitFor();
  await shoot(page, "blocked");
  await server.call(ada.token, "DELETE", `/v1/blocks/${ben.userId}`);
  await server.call(ada.token, "PUT", `/v1/contacts/${ben.userId}`);
  await go(page, "#/contacts");
  await page.getByRole("list", { name: "Contacts" }).getByText("Ben Okafor").waitFor();
  await shoot(page, "contacts");
  await page.getByRole("button", { name: "New chat" }).click();
  await page.getByRole("dialog", { name: "New chat" }).getByText("Ben Okafor").waitFor();
  await shoot(page, "new-chat-contacts");
  await page.keyboard.press("Escape");

  const other = await server.person("fay", "Fay Ito");
  await server.call(ada.token, "PATCH", "/v1/me", { who_may_add: "nobody" });
  await server.chat(other, [ada], "Bee keepers");
  await page.getByRole("button", { name: "Invitations, 1" }).click();
  await page.getByRole("button", { name: "Accept Bee keepers" }).waitFor();
  await shoot(page, "invitations");
  await server.call(ada.token, "PATCH", "/v1/me", { who_may_add: "everyone" });

  const closed = await server.chat(other, [], "Elsewhere");
  await go(page, `#/chat/${closed}`);
  await page.getByRole("button", { name: "Join chat" }).waitFor();
  await shoot(page, "not-a-member");
  const news = await server.chat(other, [ada], "Announcements");
  await server.say(other, news, "The community kitchen opens at ten.");
  await server.call(other.token, "PATCH", `/v1/chats/${news}`, { announcement_only: true });
  await go(page, `#/chat/${news}`);
  await page.getByText("Only admins write here.").waitFor();
  await shoot(page, "announcements");
  const empty = await server.chat(other, [ada], "Brand new");
  await go(page, `#/chat/${empty}`);
  await page.getByText("Say hello").waitFor();
  await shoot(page, "empty-chat");
  const leaver = await server.person("gus", "Gus");
  const gone = await server.chat(leaver, [ada]);
  await server.say(leaver, gone, "Good bye, and thanks for all the beans");
  await server.call(leaver.token, "DELETE", "/v1/me", { password: PASSWORD });
  await page.reload();
  await go(page, `#/chat/${gone}`);
  await page.getByText("This account was deleted").waitFor();
  await shoot(page, "account-deleted");

  const memory = await world.page();
  await memory.addInitScript(() => {
    Object.defineProperty(window, "indexedDB", { value: undefined });
  });
  await memory.reload();
  await memory.getByRole("textbox", { name: "Username" }).fill(ada.username);
  await memory.getByLabel("Password", { exact: true }).fill("not it");
  await memory.getByRole("button", { name: "Sign in" }).click();
  await memory.getByRole("alert").waitFor();
  await shoot(memory, "wrong-password");
  await memory.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await memory.getByRole("button", { name: "Sign in" }).click();
  await memory.getByRole("alert", { name: "Storage" }).waitFor();
  await shoot(memory, "keeps-nothing");

  await go(page, `#/chat/${group}`);
  await message(page, "The beds, and the plan").waitFor();
}

async function main(): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  const world = await World.open();
  try {
    const door = await world.page();
    await shoot(door, "sign-in");
    await door.getByRole("link", { name: "Create account" }).click();
    await shoot(door, "create-account");
    const scene = await stage(world);
    const { ada } = scene;
    const empty = await world.signedIn(await world.server.person("nia", "Nia"));
    await shoot(empty, "no-chats");
    await empty.getByRole("button", { name: "New chat" }).click();
    await shoot(empty, "new-chat");

    const page = await world.signedIn(ada);
    await page.getByRole("link", { name: "Kitchen garden" }).waitFor();
    await shoot(page, "chats");
    await openChat(page, "Kitchen garden");
    await message(page, "You are a star.").waitFor();
    await shoot(page, "conversation-unread");
    await write(page, "See you all on Saturday then!");
    await until(
      () => message(page, "See you all on Saturday").getAttribute("data-status"),
      (status) => status === "sent" || status === "delivered",
    );
    await act(page, "You are a star.", "❤️");
    await message(page, "Will do tomorrow").first().hover();
    await shoot(page, "conversation");
    await message(page, "I have twine!").first().hover();
    await page.getByRole("button", { name: "More" }).click();
    await shoot(page, "menu");
    await page.getByRole("menuitem", { name: "Reply" }).click();
    await page.getByRole("group", { name: /^Replying to/ }).waitFor();
    await shoot(page, "reply");
    await page.keyboard.press("Escape");
    await message(page, "See you all on Saturday").hover();
    await page.getByRole("button", { name: "More" }).click();
    await page.getByRole("menuitem", { name: "Message info" }).click();
    await page.getByRole("dialog", { name: "Message info" }).waitFor();
    await shoot(page, "message-info");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Details" }).click();
    await page.getByRole("list", { name: "Members" }).getByRole("listitem").first().waitFor();
    await shoot(page, "details");
    await page.getByRole("button", { name: "Close details" }).click();
    await page.keyboard.press("Control+Shift+f");
    await page.getByRole("dialog", { name: "Search" }).getByRole("searchbox").fill("twine");
    await page.getByRole("list", { name: "Results" }).getByRole("button").first().waitFor();
    await shoot(page, "search");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog", { name: "Find a chat" }).waitFor();
    await shoot(page, "quick-switch");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+/");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    await shoot(page, "shortcuts");
    await page.keyboard.press("Escape");
    const picture = { name: "beds.png", mimeType: "image/png", buffer: await page.screenshot() };
    await page
      .locator('input[type="file"]')
      .setInputFiles([
        picture,
        { name: "plan.pdf", mimeType: "application/pdf", buffer: Buffer.alloc(48_000) },
      ]);
    await until(
      () => page.getByRole("button", { name: "Send" }).isEnabled(),
      (isEnabled) => isEnabled,
    );
    await shoot(page, "attaching");
    await write(page, "The beds, and the plan");
    await message(page, "The beds, and the plan").getByRole("img", { name: "beds.png" }).waitFor();
    await shoot(page, "attachments");
    await message(page, "The beds, and the plan").getByRole("button", { name: "beds.png" }).click();
    await page.getByRole("dialog", { name: "Image" }).waitFor();
    await shoot(page, "image");
    await page.keyboard.press("Escape");
    await rarer(world, page, scene);
    await page.context().setOffline(true);
    await world.server.kill();
    await write(page, "This waits for the network");
    await page.locator('[data-state="offline"]').waitFor();
    await shoot(page, "offline");
    await page.context().setOffline(false);
    await world.server.start();
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByRole("heading", { name: "Settings" }).waitFor();
    await shoot(page, "settings");
    await page.getByRole("heading", { name: "Privacy" }).scrollIntoViewIfNeeded();
    await shoot(page, "settings-privacy");
    await page.getByRole("heading", { name: "About Parley" }).scrollIntoViewIfNeeded();
    await shoot(page, "settings-end");
  } finally {
    await world.close();
  }
}

test("every page and state", main);
