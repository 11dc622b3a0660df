/** Pictures of every page and state, light and dark, wide and narrow: `make screenshots`. */

import { mkdirSync } from "node:fs";
import type { Page } from "playwright-core";
import { test } from "vitest";
import { message, openChat, type Somebody, until, World, write } from "../pages/world.js";

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

async function main(): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  const world = await World.open();
  try {
    const door = await world.page();
    await shoot(door, "sign-in");
    await door.getByRole("link", { name: "Create account" }).click();
    await shoot(door, "create-account");
    const { ada } = await stage(world);
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
    await shoot(page, "reply");
    await page.keyboard.press("Escape");
    await message(page, "See you all on Saturday").hover();
    await page.getByRole("button", { name: "More" }).click();
    await page.getByRole("menuitem", { name: "Message info" }).click();
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
  } finally {
    await world.close();
  }
}

test("every page and state", main);
