/** What everybody else writes is text on the pages of operators, and axe finds nothing serious on any of them. */

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { CORPUS, nothingRan, watched } from "../../../ui/test/attacks.js";
import { serious, withAxe } from "../../../ui/test/axe.js";
import { ALLOWED, Hook } from "./hook.js";
import { goTo, type Somebody, World } from "./world.js";

let world: World;
let hook: Hook;
let olga: Somebody;
const WHY = CORPUS[1] as string;
beforeAll(async () => {
  hook = await Hook.open();
  world = await World.open(ALLOWED);
  olga = await world.server.operator("olga", '<b onclick="window.hacked=1">Olga</b>');
  const ada = await world.server.person("ada", CORPUS[0]);
  const ben = await world.server.person("ben", CORPUS[3]);
  const chat = await world.server.chat(ada, [ben], "Kitchen");
  for (const text of CORPUS) {
    const { message_id } = await world.server.say(ada, chat, text);
    const reason = text.replace(/\0/g, "").slice(0, 1_000);
    await world.server.call(ben.token, "POST", `/v1/chats/${chat}/messages/${message_id}/report`, { reason });
  }
  for (const text of CORPUS) {
    const name = text.replace(/\p{C}/gu, " ").trim();
    const ask = (path: string, body: object) =>
      world.server.call(olga.token, "POST", `/v1/admin/${path}`, body);
    await ask("tokens", { name: name.slice(0, 64), scopes: ["read", "send", "admin"] });
    await ask("invites", { note: name.slice(0, 200), uses: 2 });
  }
  const failing = `${hook.url}?a=<script>window.hacked=1</script>`;
  await world.server.call(olga.token, "POST", "/v1/admin/webhooks", {
    url: failing,
    events: ["message.created"],
  });
  hook.answers = 400;
}, 120_000);
afterEach(() => world.leave());
afterAll(async () => {
  await world.close();
  hook.close();
});

const PAGES = ["Reports", "Webhooks", "Push", "Nodes", "Jobs", "Topics", "Programs", "Links", "Audit"];

async function shown(page: Page, name: string): Promise<void> {
  await goTo(page, name);
  await page
    .getByRole("table", { name: name === "Programs" ? "Tokens" : name })
    .first()
    .waitFor();
}

test("nothing that others wrote runs, or asks the network for anything", async () => {
  const page = await world.console(olga);
  const reports = watched(page);
  const asked: string[] = [];
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol !== "blob:" && origin !== world.address) asked.push(request.url());
  });
  for (const name of PAGES) {
    await shown(page, name);
    await nothingRan(page, reports);
  }
  await goTo(page, "Reports");
  await page.getByRole("link", { name: WHY }).click();
  await page.locator("[data-message]").getByText(WHY).waitFor();
  await page.getByRole("button", { name: "Show what it says" }).click();
  const dialog = page.getByRole("dialog", { name: "Show what it says?" });
  await dialog.getByRole("textbox", { name: "Reason" }).fill(WHY);
  await dialog.getByRole("button", { name: "Show what it says" }).click();
  await page.getByRole("columnheader", { name: "What it says" }).waitFor();
  await nothingRan(page, reports);
  await goTo(page, "Audit");
  await page.getByText(`reason=${WHY}`).waitFor();
  await goTo(page, "Webhooks");
  await page.getByRole("button", { name: "Test" }).click();
  await page.getByRole("status", { name: "Test" }).getByText("did not arrive").waitFor();
  await nothingRan(page, reports);
  expect(asked).toEqual([]);
});

test.each(PAGES)("nothing serious on %s", async (name) => {
  const page = await withAxe(await world.console(olga));
  await shown(page, name);
  expect(await serious(page)).toEqual([]);
});

const DIALOGS: Readonly<Record<string, readonly string[]>> = {
  Webhooks: ["Add webhook", "Pause", "Rotate secret", "Remove"],
  Nodes: ["Drain"],
  Jobs: ["Run now"],
  Programs: ["Make token", "Revoke"],
  Links: ["Make link", "Revoke"],
};

test.each(Object.keys(DIALOGS))("nothing serious in the dialogs of %s", async (name) => {
  const page = await withAxe(await world.console(olga));
  await shown(page, name);
  for (const action of DIALOGS[name] ?? []) {
    await page.locator("main").getByRole("button", { name: action, exact: true }).last().click();
    await page.getByRole("dialog").waitFor();
    expect(await serious(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    // The focus is back where it was.
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe(action);
  }
});

test("nothing serious on a report, in its dialogs, and where a secret is shown", async () => {
  const page = await withAxe(await world.console(olga));
  await shown(page, "Reports");
  await page.getByRole("table", { name: "Reports" }).getByRole("link", { name: WHY }).click();
  await page.getByRole("table", { name: "What stands around it" }).waitFor();
  expect(await serious(page)).toEqual([]);
  for (const action of ["Resolve", "Delete message", "Remove from chat", "Disable", "Show what it says"]) {
    await page.getByRole("button", { name: action, exact: true }).click();
    await page.getByRole("dialog", { name: `${action}?` }).waitFor();
    expect(await serious(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }
  await goTo(page, "Links");
  await page.getByRole("button", { name: "Make link" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make link" }).click();
  await page.getByRole("dialog", { name: "The link" }).waitFor();
  expect(await serious(page)).toEqual([]);
});
