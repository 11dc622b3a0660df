/** Pictures of every page and state, light and dark, wide and narrow: `make screenshots`. */

import { mkdirSync } from "node:fs";
import type { Locator, Page } from "playwright-core";
import { test } from "vitest";
import {
  deadLetters,
  fillDoor,
  Receiver,
  type Said,
  type Somebody,
  TO_THIS_MACHINE,
  until,
  World,
} from "../pages/world.js";

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
      await page.waitForTimeout(250);
      await page.screenshot({ path: `${FOLDER}/console-${name}-${size}-${colorScheme}.png` });
    }
  }
  await page.setViewportSize(SIZES.wide);
}

interface Scene {
  readonly olga: Somebody;
  readonly ben: Somebody;
  readonly garden: string;
  readonly attic: string;
  readonly said: Said;
}

const CHATS = [
  "Release 2.0",
  "Kitchen garden",
  "Support, second line",
  "Kitchen duty",
  "Reading circle",
  "日本語の勉強",
];
const LINES = [
  "Morning! Who is around this weekend?",
  "I am. I can bring the old fence posts.",
  "The compost comes on Saturday.",
  "Will do tomorrow before work.",
];

async function stage(world: World, receiver: Receiver): Promise<Scene> {
  const { server } = world;
  const olga = await server.operator("olga", "Olga Sokolova");
  const people = [];
  for (const [username, name] of [
    ["ada", "Ada Lovelace"],
    ["ben", "Ben Okafor"],
    ["cleo", "Cléo Martin"],
    ["dai", "戴小雨"],
    ["omar", "عمر حداد"],
  ] as const) {
    people.push(await server.person(username, name));
  }
  const [ada, ben, cleo, dai, omar] = people as [Somebody, Somebody, Somebody, Somebody, Somebody];
  await server.call(olga.token, "POST", `/v1/admin/users/${omar.userId}/disable`);
  const chats = [];
  for (const title of CHATS) chats.push(await server.chat(ada, [ben, cleo, dai], title));
  await server.chat(ben, [ada]);
  const garden = chats[1] ?? "";
  let said: Said | null = null;
  for (const [at, text] of LINES.entries()) said = await server.say(people[at] ?? ada, garden, text);
  await server.call(olga.token, "POST", "/v1/admin/webhooks", {
    url: receiver.url,
    events: ["message.created"],
  });
  for (const [at, chat] of chats.entries()) {
    receiver.status = at % 2 ? 404 : 410;
    for (const text of LINES.slice(0, 1 + (at % 4))) await server.say(ada, chat, text);
  }
  await deadLetters(world, olga, 13);
  const attic = await server.chat(ada, [ben], "Attic");
  await server.say(ada, attic, "Before the disk failed");
  await server.damage("DELETE FROM chat_counters WHERE chat_id = ?", attic);
  return { olga, ben, garden, attic, said: said as Said };
}

async function main(): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  const world = await World.open(TO_THIS_MACHINE);
  const receiver = await Receiver.open();
  try {
    await shoot(await world.page({}, "/console"), "sign-in");
    const { olga, ben, garden, attic, said } = await stage(world, receiver);
    const page = await world.console(olga);
    const open = async (hash: string, name: string, ready: Locator) => {
      await page.evaluate((next) => {
        location.hash = next;
      }, hash);
      await ready.waitFor();
      await until(
        () => page.getByRole("status", { name: "Loading…" }).count(),
        (count) => count === 0,
      );
      await shoot(page, name);
    };
    const table = (name: string) => page.getByRole("table", { name, exact: true });
    await page.waitForTimeout(LINE_MS);
    await open("#/", "overview", page.getByRole("status", { name: "Health" }));
    await open("#/messages", "messages", page.getByText("Which message?"));
    await open(`#/message/${said.message_id}`, "message", page.getByRole("list", { name: "Timeline" }));
    await open("#/chats", "chats", table("Chats"));
    await open("#/chats?q=nothing-like-it", "chats-none", page.getByText("No chat matches"));
    await open(`#/chat/${garden}?around=4`, "chat", table("Log"));
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByText("Everything holds.").waitFor();
    await page.getByRole("button", { name: "Reveal" }).click();
    await page.getByRole("textbox", { name: "Reason" }).fill("Report of 12 November");
    await shoot(page, "chat-reveal");
    await page.getByRole("dialog").getByRole("button", { name: "Reveal" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await table("Log").scrollIntoViewIfNeeded();
    await shoot(page, "chat-revealed");
    await open(`#/chat/${attic}`, "chat-lost", page.getByText("The counter of this chat is lost"));
    await page.getByRole("button", { name: "Recover" }).click();
    await page.getByText("This would be written").waitFor();
    await shoot(page, "chat-recover");
    await page.keyboard.press("Escape");
    await open("#/people", "people", table("People"));
    await open(`#/person/${ben.userId}`, "person", table("Sessions"));
    await page.getByRole("button", { name: "Delete" }).click();
    await shoot(page, "person-delete");
    await page.keyboard.press("Escape");
    await open("#/dlq", "dead-letters", table("Dead letters"));
    await page.getByRole("button", { name: "Preview discard" }).click();
    await page.getByRole("dialog").waitFor();
    await shoot(page, "dead-letters-discard");
    await page.keyboard.press("Escape");
    receiver.status = 200;
    await page.getByRole("button", { name: "Preview replay" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Replay" }).click();
    await page.getByRole("progressbar", { name: "Replay" }).waitFor();
    await shoot(page, "dead-letters-replay");
    await page.getByText("No dead letters.").waitFor();
    await page.getByRole("button", { name: "Hide" }).click();
    await shoot(page, "dead-letters-none");
    await page.getByRole("combobox", { name: "Status" }).selectOption("replayed");
    await table("Dead letters").getByRole("row").nth(1).getByRole("link").first().click();
    await open(new URL(page.url()).hash, "dead-letter", page.getByRole("list", { name: "Story" }));
    await world.server.call(olga.token, "DELETE", `/v1/admin/users/${olga.userId}/sessions`);
    await page.getByRole("dialog", { name: "Your session is over" }).waitFor();
    await shoot(page, "session-over");
    const looking = await world.page({}, "/console#/people");
    await looking.getByRole("switch", { name: /^Only look/ }).click();
    await fillDoor(looking, "olga");
    await looking.getByText("Read only").waitFor();
    await shoot(looking, "read-only");
    await world.server.kill();
    await until(
      () => looking.getByRole("status", { name: "Age" }).getAttribute("data-stale"),
      (stale) => stale === "true",
    );
    await shoot(looking, "stale");
  } finally {
    receiver.close();
    await world.close();
  }
}

/** So long the lines of Overview grow before they are shown. */
const LINE_MS = 12_000;

test("every page and state", main);
