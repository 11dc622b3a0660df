/** Everybody can use it, and nobody writes into it: axe, the keyboard alone, and names and errors that attack. */

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { CORPUS, nothingRan, watched } from "../../../ui/test/attacks.js";
import { serious, withAxe } from "../../../ui/test/axe.js";
import { deadLetters, Receiver, type Somebody, signIn, TO_THIS_MACHINE, until, World } from "./world.js";

let world: World;
let olga: Somebody;
let ada: Somebody;
let receiver: Receiver;
let chat: string;
let hostile: readonly string[];
let messageId: string;
beforeAll(async () => {
  world = await World.open(TO_THIS_MACHINE);
  receiver = await Receiver.open();
  const { server } = world;
  olga = await server.operator("olga", "Olga");
  ada = await server.person("ada", "Ada");
  chat = await server.chat(ada, [olga], "Garden");
  const events = ["message.created"];
  await server.call(olga.token, "POST", "/v1/admin/webhooks", { url: receiver.url, events });
  messageId = (await server.say(ada, chat, "one")).message_id;
  // What nobody may put into a name is no name of anybody.
  const names = await Promise.all(
    CORPUS.map((text) =>
      server.call(ada.token, "PATCH", "/v1/me", { display_name: text }).then(
        () => text,
        () => "",
      ),
    ),
  );
  hostile = names.filter(Boolean);
  await server.call(ada.token, "PATCH", "/v1/me", { display_name: hostile[0] });
  for (const text of CORPUS) await server.say(ada, chat, text);
  for (const title of hostile.slice(0, 8)) await server.chat(ada, [olga], title.slice(0, 60));
  await deadLetters(world, olga, 1 + CORPUS.length);
});
afterEach(() => world.leave());
afterAll(async () => {
  receiver.close();
  await world.close();
});

/** The page is there, and what it asked for has come. */
async function shown(page: Page): Promise<void> {
  await page.getByRole("heading", { level: 1 }).waitFor();
  await until(
    () => page.getByRole("status", { name: "Loading…" }).count(),
    (count) => count === 0,
  );
}

const MINE = () => [
  "#/",
  "#/messages",
  `#/message/${messageId}`,
  "#/chats",
  `#/chat/${chat}`,
  "#/people",
  `#/person/${ada.userId}`,
  "#/dlq",
];

test("nothing serious at the door", async () => {
  expect(await serious(await withAxe(await world.page({}, "/console")))).toEqual([]);
});

test("nothing serious on any page", async () => {
  const page = await withAxe(await world.console(olga));
  for (const hash of MINE()) {
    await page.evaluate((next) => {
      location.hash = next;
    }, hash);
    await shown(page);
    expect([hash, await serious(page)]).toEqual([hash, []]);
  }
});

test.each([
  ["dlq", "Preview discard", /^Discard \d+ dead letters\?$/],
  ["chat", "Recover", "Recover counter?"],
  ["chat", "Change retention", "Change retention?"],
  ["chat", "Reveal", "Reveal?"],
  ["person", "Delete", "Delete?"],
  ["person", "Set password", "Set password?"],
])("nothing serious in what %s asks before %s; Escape leaves it", async (place, action, name) => {
  const id = place === "chat" ? `/${chat}` : place === "person" ? `/${ada.userId}` : "";
  const page = await withAxe(await world.console(olga, `#/${place}${id}`));
  const button = page.getByRole("button", { name: action, exact: true });
  await button.focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name });
  await dialog.waitFor();
  expect(await serious(page)).toEqual([]);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe(action);
});

test("nothing serious in one dead letter", async () => {
  const page = await withAxe(await world.console(olga, "#/dlq"));
  await page.getByRole("table", { name: "Dead letters" }).getByRole("link").first().click();
  await page.getByRole("list", { name: "Story" }).waitFor();
  expect(await serious(page)).toEqual([]);
});

test("nothing serious in a page that is old, nor when the session is over", async () => {
  const page = await withAxe(await world.console(olga, "#/people"));
  await shown(page);
  await page.route("**/v1/**", (route) => route.abort());
  await until(
    () => page.getByRole("status", { name: "Age" }).getAttribute("data-stale"),
    (stale) => stale === "true",
  );
  expect(await serious(page)).toEqual([]);
  await page.unroute("**/v1/**");
  await page.route("**/v1/**", (route) => {
    const body = { code: "unauthenticated", reason: "over", temporary: false };
    return route.fulfill({ status: 401, contentType: "application/json", body: JSON.stringify(body) });
  });
  const over = page.getByRole("dialog", { name: "Your session is over" });
  await over.waitFor();
  expect(await serious(page)).toEqual([]);
  // Closing it does not make the session go on.
  await page.keyboard.press("Escape");
  await over.waitFor();
});

test("a person is disabled by keys alone", async () => {
  const page = await world.console(olga);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("MAIN");
  await page.getByRole("link", { name: "People", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "People" }).waitFor();
  expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("MAIN");
  const disable = page.getByRole("row").filter({ hasText: "@ada" }).getByRole("button", { name: "Disable" });
  await disable.waitFor();
  for (let presses = 0; presses < 40; presses += 1) {
    await page.keyboard.press("Tab");
    if (await disable.evaluate((one) => one === document.activeElement)) break;
  }
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Disable?" });
  await dialog.waitFor();
  for (let presses = 0; presses < 10; presses += 1) {
    await page.keyboard.press("Tab");
    if ((await page.evaluate(() => document.activeElement?.textContent)) === "Disable") break;
  }
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Enable" }).first().waitFor();
  await world.server.call(olga.token, "POST", `/v1/admin/users/${ada.userId}/enable`);
});

test("at 390 pixels every page is reached by its link, and none is wider", async () => {
  const page = await world.console(olga, "", { viewport: { width: 390, height: 844 } });
  for (const name of ["People", "Dead letters", "Chats", "Overview"]) {
    await page.getByRole("navigation", { name: "Console" }).getByRole("link", { name, exact: true }).click();
    await page.getByRole("heading", { level: 1, name }).waitFor();
    await shown(page);
    const wider = await page.evaluate(() => {
      const main = document.querySelector("main");
      return Math.max(main?.scrollWidth ?? 0, document.documentElement.scrollWidth);
    });
    expect([name, wider]).toEqual([name, 390]);
  }
});

test("what others wrote is text, wherever the console shows it", async () => {
  const page = await world.page({}, "/console");
  const reports = watched(page);
  await signIn(page, "olga");
  for (const name of hostile) {
    await world.server.call((await world.server.token("ada")).token, "PATCH", "/v1/me", {
      display_name: name,
    });
    await page.goto(`${world.address}/console#/person/${ada.userId}`);
    await shown(page);
    await nothingRan(page, reports);
  }
  for (const hash of MINE()) {
    await page.goto(`${world.address}/console${hash}`);
    await shown(page);
    await nothingRan(page, reports);
  }
  await page.goto(`${world.address}/console#/chat/${chat}`);
  await page.getByRole("button", { name: "Reveal" }).click();
  const dialog = page.getByRole("dialog", { name: "Reveal?" });
  await dialog.getByRole("textbox", { name: "Reason" }).fill("<img src=x onerror=window.hacked=1>");
  await dialog.getByRole("button", { name: "Reveal" }).click();
  await page
    .getByRole("table", { name: "Log" })
    .getByText("<script>window.hacked = 1</script>")
    .first()
    .waitFor();
  await nothingRan(page, reports);
  await page.goto(`${world.address}/console#/dlq?error=${encodeURIComponent(CORPUS[1] ?? "")}`);
  await shown(page);
  await nothingRan(page, reports);
});
