/** Dead letters: looked at, replayed and given up, and nothing that came after the look is touched. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { deadLetters, Receiver, type Somebody, TO_THIS_MACHINE, until, World } from "./world.js";

let world: World;
let olga: Somebody;
let ada: Somebody;
let receiver: Receiver;
let chat: string;
beforeAll(async () => {
  world = await World.open(TO_THIS_MACHINE);
  receiver = await Receiver.open();
  olga = await world.server.operator("olga", "Olga");
  ada = await world.server.person("ada", "Ada");
  chat = await world.server.chat(ada, [olga], "Garden");
  await world.server.call(olga.token, "POST", "/v1/admin/webhooks", {
    url: receiver.url,
    events: ["message.created"],
  });
  for (const text of ["one", "two", "three"]) await world.server.say(ada, chat, text);
  await deadLetters(world, olga, 3);
});
afterEach(() => world.leave());
afterAll(async () => {
  receiver.close();
  await world.close();
});

const pending = async () =>
  (await world.server.call<{ total: number }>(olga.token, "GET", "/v1/admin/dlq?status=pending&brief=true"))
    .total;

test("they are grouped by error, filtered, and looked at one by one", async () => {
  const page = await world.console(olga, "#/dlq");
  const table = page.getByRole("table", { name: "Dead letters" });
  await table.waitFor();
  expect(await table.getByRole("row").count()).toBe(1 + (await pending()));
  const errors = page.getByRole("table", { name: "Errors" });
  await errors.getByRole("link", { name: "refused" }).click();
  await until(
    () => page.getByRole("textbox", { name: "Error" }).inputValue(),
    (value) => value === "refused",
  );
  await page.getByRole("textbox", { name: "Error" }).fill("no such error");
  await page.getByText("No dead letters.").waitFor();
  await page.getByRole("textbox", { name: "Error" }).fill("");
  await table.getByRole("link").first().click();
  await page.getByRole("heading", { level: 1, name: "Dead letter" }).waitFor();
  await page.getByRole("list", { name: "Story" }).getByRole("listitem").first().waitFor();
  await page.getByText("three", { exact: true }).waitFor();
});

test("the list of the console is in no audit log, and a letter that is read is", async () => {
  const read = async () =>
    (
      await world.server.call<{ records: { actor: string; target_id: string }[] }>(
        olga.token,
        "GET",
        "/v1/admin/audit?action=dlq.read",
      )
    ).records.length;
  const before = await read();
  const page = await world.console(olga, "#/dlq");
  const table = page.getByRole("table", { name: "Dead letters" });
  await table.waitFor();
  expect(await read()).toBe(before);
  await table.getByRole("link").first().click();
  await page.getByRole("list", { name: "Story" }).waitFor();
  expect(await read()).toBe(before + 1);
});

test("a discard asks for a reason, and takes what was marked", async () => {
  const page = await world.console(olga, "#/dlq");
  const before = await pending();
  await page
    .getByRole("checkbox", { name: /^Mark dlq_/ })
    .first()
    .check();
  await page.getByText("1 marked").waitFor();
  await page.getByRole("button", { name: "Preview discard" }).click();
  const dialog = page.getByRole("dialog", { name: "Discard 1 dead letters?" });
  expect(await dialog.getByRole("button", { name: "Discard" }).isDisabled()).toBe(true);
  await dialog.getByRole("textbox", { name: "Reason" }).fill("the receiver is gone");
  await dialog.getByRole("button", { name: "Discard" }).click();
  await page.getByText("1 dead letter given up.").waitFor();
  expect(await pending()).toBe(before - 1);
});

test("a replay touches what was previewed, and nothing that came later", async () => {
  const page = await world.console(olga, "#/dlq");
  const seen = await pending();
  await page.getByRole("button", { name: "Preview replay" }).click();
  const dialog = page.getByRole("dialog", { name: `Replay ${seen} dead letters?` });
  await dialog
    .getByText(new RegExp(`^${seen} dead letters? of 1 chat, as of \\d\\d:\\d\\d:\\d\\d\\.$`))
    .waitFor();
  await world.server.say(ada, chat, "later");
  await deadLetters(world, olga, seen + 1);
  receiver.status = 200;
  receiver.bodies.length = 0;
  await dialog.getByRole("button", { name: "Replay" }).click();
  const progress = page.getByRole("progressbar", { name: "Replay" });
  await progress.waitFor();
  await until(
    () => progress.evaluate((one) => [(one as HTMLProgressElement).value, (one as HTMLProgressElement).max]),
    ([value, max]) => value === max && max === seen,
  );
  expect(await pending()).toBe(1);
  expect(receiver.bodies.filter((body) => body.includes("later"))).toEqual([]);
  // Who leaves the page and comes back finds the replay again.
  await page.reload();
  await page.getByRole("progressbar", { name: "Replay" }).waitFor();
  await page.getByRole("button", { name: "Hide" }).click();
  await page.getByRole("progressbar", { name: "Replay" }).waitFor({ state: "detached" });
});

test("a replay that another operator began is found under way", async () => {
  receiver.status = 503;
  await deadLetters(world, olga, 1);
  await world.server.call(olga.token, "POST", "/v1/admin/dlq/replay", { filter: {} });
  const page = await world.console(olga, "#/dlq");
  await page.getByRole("progressbar", { name: "Replay" }).waitFor();
  receiver.status = 200;
});
