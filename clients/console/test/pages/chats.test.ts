/** Chats: found, looked into, checked and recovered; and the story of one message. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { goTo, type Somebody, until, World } from "./world.js";

let world: World;
let olga: Somebody;
let ada: Somebody;
let ben: Somebody;
let garden: string;
let said: { message_id: string; sequence: number };
beforeAll(async () => {
  world = await World.open();
  olga = await world.server.operator("olga", "Olga");
  ada = await world.server.person("ada", "Ada");
  ben = await world.server.person("ben", "Ben");
  garden = await world.server.chat(ada, [ben], "Garden");
  said = await world.server.say(ada, garden, "the secret of the garden");
});
afterEach(() => world.leave());
afterAll(() => world.close());

test("a chat is found by its title, and shows its counters and members", async () => {
  const page = await world.console(olga);
  await goTo(page, "Chats");
  await page.getByRole("searchbox", { name: "Title, id, or two usernames" }).fill("gard");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByRole("table", { name: "Chats" }).getByRole("link", { name: "Garden" }).click();
  await page.getByRole("heading", { level: 1, name: "Garden" }).waitFor();
  const members = page.getByRole("table", { name: "Members" });
  await members.getByRole("link", { name: "Ben" }).waitFor();
  await page
    .getByText("0% of 2")
    .or(page.getByText(/^0% of \d+$/))
    .first()
    .waitFor();
});

test("what people wrote is shown for a reason, which is recorded", async () => {
  const page = await world.console(olga, `#/chat/${garden}?around=${said.sequence}`);
  const log = page.getByRole("table", { name: "Log" });
  await log.getByText(said.message_id).waitFor();
  expect(await page.getByText("the secret of the garden").count()).toBe(0);
  await page.getByRole("button", { name: "Reveal" }).click();
  const dialog = page.getByRole("dialog", { name: "Reveal?" });
  await dialog.getByRole("textbox", { name: "Reason" }).fill("report 7");
  await dialog.getByRole("button", { name: "Reveal" }).click();
  await log.getByText("the secret of the garden").waitFor();
  const { records } = await world.server.call<{ records: { detail: string }[] }>(
    olga.token,
    "GET",
    "/v1/admin/audit?action=chat.read",
  );
  expect(records[0]?.detail).toContain("report 7");
});

test("a check says that everything holds", async () => {
  const page = await world.console(olga, `#/chat/${garden}`);
  await page.getByRole("button", { name: "Check" }).click();
  await until(
    () => page.getByRole("status", { name: "Check" }).textContent(),
    (text) => text?.startsWith("Everything holds.") ?? false,
  );
});

test("a lost counter is seen, looked at, and recovered by the id of the chat", async () => {
  const attic = await world.server.chat(ada, [ben], "Attic");
  await world.server.say(ada, attic, "one");
  await world.server.damage("DELETE FROM chat_counters WHERE chat_id = ?", attic);
  const page = await world.console(olga, `#/chat/${attic}`);
  await page.getByRole("alert").getByText("The counter of this chat is lost").waitFor();
  await page.getByRole("button", { name: "Recover" }).click();
  const dialog = page.getByRole("dialog", { name: "Recover counter?" });
  const dryRun = dialog.getByRole("status", { name: "Dry run" });
  await until(
    () => dryRun.textContent(),
    (text) => /Counter: lost → #\d/.test(text ?? ""),
  );
  const write = dialog.getByRole("button", { name: "Recover" });
  await dialog.getByRole("textbox", { name: "Chat id" }).fill(garden);
  expect(await write.isDisabled()).toBe(true);
  await dialog.getByRole("textbox", { name: "Chat id" }).fill(attic);
  await write.click();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("alert").waitFor({ state: "detached" });
  await world.server.say(ada, attic, "two");
});

test("a chat that needs nothing has nothing to recover", async () => {
  const page = await world.console(olga, `#/chat/${garden}`);
  await page.getByRole("button", { name: "Recover" }).click();
  const dialog = page.getByRole("dialog", { name: "Recover counter?" });
  await until(
    () => dialog.getByRole("status", { name: "Dry run" }).textContent(),
    (text) => text?.includes("Nothing is to be done") ?? false,
  );
  await dialog.getByRole("textbox", { name: "Chat id" }).fill(garden);
  expect(await dialog.getByRole("button", { name: "Recover" }).isDisabled()).toBe(true);
});

test("a message is explained step by step", async () => {
  const page = await world.console(olga);
  await goTo(page, "Messages");
  await page.getByRole("textbox", { name: "Message id" }).fill(said.message_id);
  await page.getByRole("button", { name: "Explain" }).click();
  const steps = page.getByRole("list", { name: "Timeline" }).getByRole("listitem");
  await steps.first().waitFor();
  const names = await steps.evaluateAll((all) => all.map((one) => one.getAttribute("data-step")));
  expect(names).toContain("stored");
  expect(names).toContain("skipped");
  await steps.filter({ hasText: "Ben" }).first().waitFor();
  expect(page.url()).toContain(`#/message/${said.message_id}`);
});

test("a link to a message opens its story; one that does not exist says so", async () => {
  const page = await world.console(olga, `#/message/${said.message_id}`);
  await page.getByRole("list", { name: "Timeline" }).waitFor();
  await page.getByRole("textbox", { name: "Message id" }).fill("msg_nothing");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByRole("alert").waitFor();
});
