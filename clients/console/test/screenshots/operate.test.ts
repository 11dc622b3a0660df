/** Pictures of the pages that operate.test.ts tries, with something on them. */

import type { Page } from "playwright-core";
import { test } from "vitest";
import { ALLOWED, Hook } from "../pages/hook.js";
import { goTo, World } from "../pages/world.js";
import { shoot } from "./shoot.js";

const PAGES = ["Reports", "Webhooks", "Push", "Nodes", "Jobs", "Topics", "Programs", "Links", "Audit"];

async function fill(world: World, hook: Hook): Promise<Page> {
  const olga = await world.server.operator("olga", "Olga Sokolova");
  const ask = (path: string, body: object) =>
    world.server.call(olga.token, "POST", `/v1/admin/${path}`, body);
  const [ada, ben, cem] = [
    await world.server.person("ada", "Ada Lovelace"),
    await world.server.person("ben", "Ben Okri"),
    await world.server.person("cem", "Cem Yılmaz"),
  ];
  const chat = await world.server.chat(ada, [ben, cem], "Kitchen");
  const said = ["Who took the milk?", "It was me, sorry.", "You are an idiot, Cem.", "Hey. Not like this."];
  const reasons = ["It insults me", "rude", ""];
  for (const [at, text] of said.entries()) {
    const { message_id } = await world.server.say(at === 2 ? ben : ada, chat, text);
    const reason = reasons[at - 1] ?? "";
    if (at === 2)
      await world.server.call(cem.token, "POST", `/v1/chats/${chat}/messages/${message_id}/report`, {
        reason: "It insults me, and not for the first time. Please talk to Ben.",
      });
    if (at === 1)
      await world.server.call(ben.token, "POST", `/v1/chats/${chat}/messages/${message_id}/report`, {
        reason,
      });
  }
  await ask("webhooks", { url: hook.url, events: ["message.created", "message.edited", "member.changed"] });
  await ask("webhooks", { url: "http://127.0.0.1:9/crm/events", events: ["account.created"], chat_id: null });
  await world.server.say(ada, chat, "Shall we cook on Friday?");
  await ask("tokens", { name: "backup robot", scopes: ["read"] });
  await ask("tokens", {
    name: "CI",
    user_id: ada.userId,
    scopes: ["send"],
    chat_id: chat,
    expires_in_days: 90,
  });
  await ask("tokens", { name: "our shop", scopes: ["admin", "read", "send"] });
  await ask("invites", { note: "for the new kitchen team", uses: 12 });
  await ask("invites", { uses: 1 });
  await world.server.call(olga.token, "POST", `/v1/admin/users/${ben.userId}/disable`);
  await world.server.call(olga.token, "POST", `/v1/admin/users/${ben.userId}/enable`);
  return world.console(olga);
}

/** A dialog of this name, as it is when its button was pressed. */
async function asks(page: Page, button: string, name: string): Promise<void> {
  await page.getByRole("button", { name: button, exact: true }).first().click();
  await page.getByRole("dialog").waitFor();
  await shoot(page, name);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
}

async function main(): Promise<void> {
  const hook = await Hook.open();
  const world = await World.open(ALLOWED);
  try {
    const page = await fill(world, hook);
    for (const name of PAGES) {
      await goTo(page, name);
      await page.getByRole("table").first().waitFor();
      await shoot(page, name.toLowerCase());
    }
    await goTo(page, "Reports");
    await page.getByRole("link", { name: /not for the first time/ }).click();
    await page.getByRole("table", { name: "What stands around it" }).waitFor();
    await shoot(page, "report");
    await asks(page, "Resolve", "report-resolve");
    await asks(page, "Delete message", "report-delete");
    await goTo(page, "Webhooks");
    await asks(page, "Add webhook", "webhook-add");
    await goTo(page, "Programs");
    await asks(page, "Make token", "token-make");
    await goTo(page, "Nodes");
    await asks(page, "Drain", "node-drain");
    await goTo(page, "Jobs");
    await page.getByRole("link", { name: "log_hashes" }).click();
    await page.getByRole("table", { name: "Last runs" }).waitFor();
    await shoot(page, "job-runs");
    await goTo(page, "Links");
    await page.getByRole("button", { name: "Make link" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Make link" }).click();
    await page.getByRole("dialog", { name: "The link" }).waitFor();
    await shoot(page, "link-once");
  } finally {
    await world.close();
    hook.close();
  }
}

test("the pages of reports, programs and the audit log", main);
