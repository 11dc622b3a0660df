/** People: found, stopped, signed out, given a new password, deleted; and what a console that only looks may do. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { fillDoor, PASSWORD, type Somebody, until, World } from "./world.js";

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

const stateOf = async (userId: string) =>
  (await world.server.call<{ state: string }>(olga.token, "GET", `/v1/admin/users/${userId}`)).state;

test("a person is found, disabled, and enabled again", async () => {
  const page = await world.console(olga, "#/people");
  await page.getByRole("searchbox", { name: "Name or id" }).fill("ada");
  await page.getByRole("button", { name: "Search" }).click();
  const table = page.getByRole("table", { name: "People" });
  await until(
    () => table.getByRole("row").count(),
    (count) => count === 2,
  );
  await table.getByRole("link", { name: "Ada" }).click();
  await page.getByRole("heading", { level: 1, name: "Ada" }).waitFor();
  await page.getByRole("button", { name: "Disable" }).click();
  await page.getByRole("dialog", { name: "Disable?" }).getByRole("button", { name: "Disable" }).click();
  await page.getByRole("button", { name: "Enable" }).waitFor();
  expect(await stateOf(ada.userId)).toBe("disabled");
  await page.getByRole("table", { name: "Done by operators" }).getByText("user.disable").waitFor();
  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByRole("dialog", { name: "Enable?" }).getByRole("button", { name: "Enable" }).click();
  await page.getByRole("button", { name: "Disable" }).waitFor();
  expect(await stateOf(ada.userId)).toBe("active");
});

test("all sessions are revoked, from the list too", async () => {
  const session = await world.server.token("ada");
  const page = await world.console(olga, "#/people?q=ada");
  await page.getByRole("button", { name: "Revoke all sessions" }).click();
  const dialog = page.getByRole("dialog", { name: "Revoke all sessions?" });
  await dialog.getByRole("button", { name: "Revoke all sessions" }).click();
  await dialog.waitFor({ state: "detached" });
  await expect(world.server.call(session.token, "GET", "/v1/me")).rejects.toThrow("401");
});

test("a link for a new password is shown once", async () => {
  const page = await world.console(olga, `#/person/${ada.userId}`);
  await page.getByRole("button", { name: "Make a reset link" }).click();
  const question = page.getByRole("dialog", { name: "Make a reset link?" });
  await question.getByRole("button", { name: "Make a reset link" }).click();
  await page.getByText(/\/link#/).waitFor();
});

test("somebody is made an operator, and is one no more", async () => {
  const page = await world.console(olga, `#/person/${ada.userId}`);
  await page.getByRole("button", { name: "Make operator" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make operator" }).click();
  await page.getByRole("button", { name: "End operator" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "End operator" }).click();
  await page.getByRole("button", { name: "Make operator" }).waitFor();
});

test("the last operator stays, and the dialog says why", async () => {
  const page = await world.console(olga, `#/person/${olga.userId}`);
  await page.getByRole("button", { name: "End operator" }).click();
  const dialog = page.getByRole("dialog", { name: "End operator?" });
  await dialog.getByRole("button", { name: "End operator" }).click();
  await dialog.getByRole("alert").getByText("this is the last operator").waitFor();
});

test("a person is deleted by their username, and what they wrote is erased", async () => {
  const eve = await world.server.person("eve", "Eve");
  const chat = await world.server.chat(eve, [ada], "Cellar");
  await world.server.say(eve, chat, "gone soon");
  const page = await world.console(olga, `#/person/${eve.userId}`);
  await page.getByRole("button", { name: "Delete" }).click();
  const dialog = page.getByRole("dialog", { name: "Delete?" });
  await dialog.getByRole("switch", { name: /^Also erase/ }).click();
  await dialog.getByRole("textbox", { name: "Username" }).fill("ev");
  expect(await dialog.getByRole("button", { name: "Delete" }).isDisabled()).toBe(true);
  await dialog.getByRole("textbox", { name: "Username" }).fill("eve");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("region", { name: "Erasure" }).waitFor();
  expect(await stateOf(eve.userId)).toBe("deleted");
  await page.getByRole("region", { name: "Erasure" }).getByText("finished", { exact: true }).waitFor();
});

test("what cannot be undone asks for the password again when that was long ago", async () => {
  const fay = await world.server.person("fay", "Fay");
  const page = await world.console(olga, `#/person/${fay.userId}`);
  let refusals = 0;
  await page.route(`**/v1/admin/users/${fay.userId}`, async (route) => {
    if (route.request().method() !== "DELETE" || refusals > 0) return route.continue();
    refusals += 1;
    const body = { code: "password_needed", reason: "too long ago", temporary: false };
    return route.fulfill({ status: 403, contentType: "application/json", body: JSON.stringify(body) });
  });
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog", { name: "Delete?" }).getByRole("textbox", { name: "Username" }).fill("fay");
  await page.getByRole("dialog", { name: "Delete?" }).getByRole("button", { name: "Delete" }).click();
  const again = page.getByRole("dialog", { name: "Your password again" });
  await again.getByLabel("Password", { exact: true }).fill("not this one");
  await again.getByRole("button", { name: "Go on" }).click();
  await again.getByRole("alert").getByText("Wrong username or password.").waitFor();
  await again.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await again.getByRole("button", { name: "Go on" }).click();
  await until(
    () => stateOf(fay.userId),
    (state) => state === "deleted",
  );
  expect(refusals).toBe(1);
});

test("a console that only looks has nothing to press", async () => {
  const page = await world.page({}, `/console#/person/${ada.userId}`);
  await page.getByRole("switch", { name: /^Only look/ }).click();
  await fillDoor(page, "olga");
  const names = [
    "Disable",
    "Revoke all sessions",
    "Make a reset link",
    "Set password",
    "Make operator",
    "Delete",
  ];
  for (const name of names) {
    const button = page.getByRole("button", { name, exact: true });
    await button.waitFor();
    expect([name, await button.isDisabled()]).toEqual([name, true]);
  }
  await page.getByText("Read only").waitFor();
});
