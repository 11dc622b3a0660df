/** A report, handled in the console: read with a reason, acted on, resolved; all of it recorded. */

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { goTo, type Somebody, until, World } from "./world.js";

let world: World;
let olga: Somebody;
let ada: Somebody;
beforeAll(async () => {
  world = await World.open();
  olga = await world.server.operator("olga", "Olga");
  ada = await world.server.person("ada", "Ada");
});
afterEach(() => world.leave());
afterAll(() => world.close());

let made = 0;

/** Somebody new was rude to Ada, who reported it. */
async function reported(
  title?: string,
): Promise<{ rude: Somebody; chat: string; messageId: string; why: string }> {
  made += 1;
  const rude = await world.server.person(`rude${made}`, `Rude ${made}`);
  const chat = await world.server.chat(ada, [rude], title);
  await world.server.say(ada, chat, `words before ${made}`);
  const { message_id: messageId } = await world.server.say(rude, chat, `rude words ${made}`);
  const why = `it is rude ${made}`;
  await world.server.call(ada.token, "POST", `/v1/chats/${chat}/messages/${messageId}/report`, {
    reason: why,
  });
  return { rude, chat, messageId, why };
}

async function open(page: Page, why: string): Promise<void> {
  await goTo(page, "Reports");
  await page.getByRole("table", { name: "Reports" }).getByRole("link", { name: why }).click();
  await page.getByRole("heading", { level: 1, name: "Report" }).waitFor();
}

async function actions(): Promise<string[]> {
  const { records } = await world.server.call<{ records: { action: string }[] }>(
    olga.token,
    "GET",
    "/v1/admin/audit?limit=50",
  );
  return records.map(({ action }) => action);
}

test("what stands around a message is read for a reason, once, and that is recorded", async () => {
  const { why } = await reported("Kitchen");
  const page = await world.console(olga);
  await open(page, why);
  const around = page.getByRole("table", { name: "What stands around it" });
  await around.waitFor();
  expect(await around.textContent()).not.toContain("words before");
  await page.getByRole("button", { name: "Show what it says" }).click();
  const dialog = page.getByRole("dialog", { name: "Show what it says?" });
  expect(await dialog.getByRole("button", { name: "Show what it says" }).isDisabled()).toBe(true);
  await dialog.getByRole("textbox", { name: "Reason" }).fill("a report");
  await dialog.getByRole("button", { name: "Show what it says" }).click();
  await around.getByText(`words before ${made}`).waitFor();
  // It is asked for again and again, and read once.
  await page.waitForResponse((answer) => answer.url().includes("/v1/admin/overview"));
  await page.waitForResponse((answer) => answer.url().includes("/v1/admin/overview"));
  const read = (await actions()).filter((action) => action.endsWith(".read"));
  expect(read.sort()).toEqual(["chat.read", "report.read"]);
});

test("a report is resolved with an outcome, and what is done about it, in one request", async () => {
  const { rude, chat, messageId, why } = await reported("Garden");
  const page = await world.console(olga);
  await open(page, why);
  await page.getByRole("button", { name: "Resolve" }).click();
  const dialog = page.getByRole("dialog", { name: "Resolve?" });
  await dialog.getByRole("textbox", { name: "Outcome" }).fill("removed");
  await dialog.getByRole("textbox", { name: "Note" }).fill("the second time");
  for (const name of ["Delete message", "Remove from chat", "Disable"]) {
    await dialog.getByRole("switch", { name }).click();
  }
  await dialog.getByRole("textbox", { name: "Reason" }).fill("it threatens");
  await dialog.getByRole("button", { name: "Resolve" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.locator("[data-message]").getByText("Message deleted").waitFor();
  await page.getByText("removed", { exact: true }).waitFor();
  expect(await page.getByRole("button", { name: "Resolve" }).isDisabled()).toBe(true);
  const { state } = await world.server.call<{ state: string }>(
    olga.token,
    "GET",
    `/v1/admin/users/${rude.userId}`,
  );
  expect(state).toBe("disabled");
  const { members } = await world.server.call<{ members: { user_id: string }[] }>(
    olga.token,
    "GET",
    `/v1/admin/chats/${chat}/members`,
  );
  expect(members.map((one) => one.user_id)).toEqual([ada.userId]);
  expect(await actions()).toEqual(
    expect.arrayContaining([
      "report.act",
      "message.delete",
      "member.remove",
      "user.disable",
      "report.resolve",
    ]),
  );
  expect(messageId).not.toBe("");
  await goTo(page, "Reports");
  await until(
    () => page.getByRole("link", { name: why }).count(),
    (count) => count === 0,
  );
  await page.getByRole("combobox", { name: "Status" }).selectOption("resolved");
  await page.getByRole("link", { name: why }).waitFor();
});

test("each shortcut says what it does, asks why, and can be called off", async () => {
  const { rude, why } = await reported();
  const page = await world.console(olga);
  await open(page, why);
  expect(await page.getByRole("button", { name: "Remove from chat" }).isDisabled()).toBe(true);
  await page.getByRole("button", { name: "Delete message" }).click();
  const deletion = page.getByRole("dialog", { name: "Delete message?" });
  await deletion.getByText(`rude words ${made}`).waitFor();
  await deletion.getByRole("button", { name: "Cancel" }).click();
  await deletion.waitFor({ state: "detached" });
  expect(await page.locator("[data-message]").textContent()).toBe(`rude words ${made}`);
  await page.getByRole("button", { name: "Delete message" }).click();
  await deletion.getByRole("textbox", { name: "Reason" }).fill("it threatens");
  await deletion.getByRole("button", { name: "Delete message" }).click();
  await page.locator("[data-message]").getByText("Message deleted").waitFor();
  await page.getByRole("button", { name: "Disable" }).click();
  const disabling = page.getByRole("dialog", { name: "Disable?" });
  await disabling.getByText(`Nothing of Rude ${made} is stored`).waitFor();
  await disabling.getByRole("textbox", { name: "Reason" }).fill("it threatens");
  await disabling.getByRole("button", { name: "Disable" }).click();
  await disabling.waitFor({ state: "detached" });
  const { state } = await world.server.call<{ state: string }>(
    olga.token,
    "GET",
    `/v1/admin/users/${rude.userId}`,
  );
  expect(state).toBe("disabled");
  expect(await page.getByText("open", { exact: true }).count()).toBe(1);
});
