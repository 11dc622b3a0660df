/** Webhooks, tokens of programs, links, nodes and jobs: made, tried, ended. */

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ALLOWED, Hook } from "./hook.js";
import { goTo, type Somebody, until, World } from "./world.js";

let world: World;
let hook: Hook;
let olga: Somebody;
beforeAll(async () => {
  hook = await Hook.open();
  world = await World.open(ALLOWED);
  olga = await world.server.operator("olga", "Olga");
});
afterEach(() => world.leave());
afterAll(async () => {
  await world.close();
  hook.close();
});

/** Press the button, and the one of the same name in the dialog that asks. */
async function confirm(page: Page, name: string, within = page.locator("main")): Promise<void> {
  await within.getByRole("button", { name, exact: true }).click();
  const dialog = page.getByRole("dialog", { name: `${name}?`, exact: true });
  await dialog.getByRole("button", { name, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
}

/** What a dialog shows once. */
async function secretOf(page: Page, title: string): Promise<string> {
  const dialog = page.getByRole("dialog", { name: title });
  const secret = (await dialog.locator("[data-secret] code").textContent()) ?? "";
  await dialog.getByRole("button", { name: "I have copied it" }).click();
  await dialog.waitFor({ state: "detached" });
  expect(await page.content()).not.toContain(secret);
  return secret;
}

test("a webhook is added, tested, paused, goes on, gets a new secret, and is removed", async () => {
  const page = await world.console(olga);
  await goTo(page, "Webhooks");
  await page.getByText("No webhooks.").waitFor();
  await page.getByRole("button", { name: "Add webhook" }).click();
  const adding = page.getByRole("dialog", { name: "Add webhook" });
  await adding.getByRole("textbox", { name: "Address" }).fill("ftp://example.com/hook");
  await adding.getByRole("button", { name: "Add webhook" }).click();
  await adding.getByRole("alert").waitFor();
  await adding.getByRole("textbox", { name: "Address" }).fill(hook.url);
  await adding.getByRole("checkbox", { name: "member.changed" }).check();
  await adding.getByRole("button", { name: "Add webhook" }).click();
  const first = await secretOf(page, "Secret of the webhook");
  expect(first).toMatch(/^whs_/);
  const table = page.getByRole("table", { name: "Webhooks" });
  const line = table.getByRole("row").filter({ hasText: hook.url });
  await line.getByText("message.created, member.changed").waitFor();

  await line.getByRole("button", { name: "Test" }).click();
  await page.getByRole("status", { name: "Test" }).getByText("The test arrived.").waitFor();
  expect(hook.got.map(({ type }) => type)).toEqual(["webhook.test"]);
  hook.answers = 500;
  await line.getByRole("button", { name: "Test" }).click();
  await page.getByRole("status", { name: "Test" }).getByText("The test did not arrive").waitFor();
  hook.answers = 204;

  await confirm(page, "Pause", line);
  await line.getByText("paused", { exact: true }).waitFor();
  const chat = await world.server.chat(olga, [], "Kitchen");
  await world.server.say(olga, chat, "while it is paused");
  await line.getByText("in 1 chat").waitFor();
  expect(hook.got.filter(({ type }) => type === "message.created")).toEqual([]);
  await confirm(page, "Resume", line);
  await until(
    async () => hook.got.filter(({ type }) => type === "message.created").length,
    (count) => count === 1,
  );

  await confirm(page, "Rotate secret", line);
  expect(await secretOf(page, "Secret of the webhook")).not.toBe(first);
  await confirm(page, "Remove", line);
  await page.getByText("No webhooks.").waitFor();
});

test("a token is made for a program, shown once, works, and is revoked", async () => {
  const page = await world.console(olga);
  await goTo(page, "Programs");
  await page.getByRole("button", { name: "Make token" }).click();
  const making = page.getByRole("dialog", { name: "Make token" });
  await making.getByRole("textbox", { name: "Name" }).fill("backup robot");
  await making.getByRole("checkbox", { name: /^send/ }).check();
  await making.getByRole("textbox", { name: "Ends after days" }).fill("3");
  await making.getByRole("button", { name: "Make token" }).click();
  const token = await secretOf(page, "Token of the program");
  await world.server.call(token, "GET", "/v1/chats");
  await expect(world.server.call(token, "GET", "/v1/admin/tokens")).rejects.toThrow("403");
  const line = page.getByRole("row").filter({ hasText: "backup robot" });
  await line.getByText("Olga").first().waitFor();
  expect(await line.getByText(/^(read|send|admin)$/).allTextContents()).toEqual(["read", "send"]);
  await confirm(page, "Revoke", line);
  await page.getByText("No program has a token.").waitFor();
  await expect(world.server.call(token, "GET", "/v1/chats")).rejects.toThrow("401");
});

test("a link is made, shown once, and revoked", async () => {
  const page = await world.console(olga);
  await goTo(page, "Links");
  await page.getByRole("button", { name: "Make link" }).click();
  const making = page.getByRole("dialog", { name: "Make link" });
  await making.getByRole("textbox", { name: "Note" }).fill("for the kitchen");
  await making.getByRole("textbox", { name: "How many people" }).fill("5");
  await making.getByRole("button", { name: "Make link" }).click();
  const url = await secretOf(page, "The link");
  expect(url).toContain(`${world.address}/link#`);
  const line = page.getByRole("row").filter({ hasText: "for the kitchen" });
  await line.getByText("0 of 5").waitFor();
  await confirm(page, "Revoke", line);
  await line.getByText("revoked").waitFor();
  expect(await line.getByRole("button").count()).toBe(0);
});

test("a job runs when it is wanted, and shows its runs", async () => {
  const page = await world.console(olga);
  await goTo(page, "Jobs");
  const table = page.getByRole("table", { name: "Jobs" });
  const line = table.getByRole("row").filter({ has: page.getByRole("link", { name: "expired_sessions" }) });
  const before = await line.getByText(/^0 of \d+$/).textContent();
  await confirm(page, "Run now", line);
  await until(
    () => line.getByText(/^0 of \d+$/).textContent(),
    (text) => text !== before,
  );
  await line.getByRole("link", { name: "expired_sessions" }).click();
  const runs = page.getByRole("table", { name: "Last runs" });
  await runs.getByRole("row").nth(1).getByText("ok").waitFor();
  // What runs all the time cannot be asked to.
  const endless = table.getByRole("row").filter({ has: page.getByRole("link", { name: "dead_letters" }) });
  expect(await endless.getByRole("button").count()).toBe(0);
});

test("push and topics say what there is", async () => {
  const page = await world.console(olga);
  await goTo(page, "Topics");
  await page.getByRole("table", { name: "Topics" }).getByText("messages.persisted").first().waitFor();
  await goTo(page, "Push");
  await page.getByRole("table", { name: "Push" }).getByText("Apple (APNs)").waitFor();
  await page.getByRole("searchbox", { name: "User id or username" }).fill("OLGA");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByText("No device of theirs rings.").waitFor();
  await page.getByRole("searchbox", { name: "User id or username" }).fill("nobody");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByText("There is nobody who is called so.").waitFor();
});

test("a console that may only look has nothing to press", async () => {
  const page = await world.page({}, "/console");
  await page.getByRole("textbox", { name: "Username" }).fill("olga");
  await page.getByLabel("Password", { exact: true }).fill("a long password");
  await page.getByRole("switch", { name: /^Only look/ }).click();
  await page.getByRole("button", { name: "Sign in" }).click();
  const wanted = { Webhooks: "Add webhook", Programs: "Make token", Links: "Make link", Nodes: "Drain" };
  for (const [name, button] of Object.entries(wanted)) {
    await goTo(page, name);
    await page.getByRole("button", { name: button }).waitFor();
    expect(await page.getByRole("button", { name: button }).isDisabled()).toBe(true);
  }
});

test("a node is drained from its page", async () => {
  const page = await world.console(olga);
  await goTo(page, "Nodes");
  const line = page.getByRole("table", { name: "Nodes" }).getByRole("row").nth(1);
  await line.getByText("this one").waitFor();
  await line.getByText(/^\d+ MiB$/).waitFor();
  await page.getByText("No backup.target is set").waitFor();
  await confirm(page, "Drain", line);
  await until(
    async () => world.server.isRunning,
    (isRunning) => !isRunning,
  );
});
