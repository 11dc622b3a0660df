/** Files on their way: progress, a connection that breaks, a page that is left; and pictures as large as they are shown. */

import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page, Route } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { message, online, openChat, type Somebody, until, World, write } from "./world.js";

const MIB = 1024 * 1024;

let world: World;
let ada: Somebody;
let ben: Somebody;
let count = 0;

beforeAll(async () => {
  world = await World.open();
});
beforeEach(async () => {
  count += 1;
  ada = await world.server.person(`ada${count}`, "Ada");
  ben = await world.server.person(`ben${count}`, "Ben");
  await world.server.chat(ada, [ben], "Garden");
});
afterEach(() => world.leave());
afterAll(() => world.close());

const files = (page: Page) => page.getByRole("list", { name: "Files" }).getByRole("listitem");
const state = (page: Page) => files(page).first().getAttribute("data-state");
const isUpload = (url: URL) => url.pathname.startsWith("/v1/files/") || url.pathname.includes("/uploads/");

async function choose(page: Page, path: string): Promise<void> {
  await page.locator('form input[type="file"][multiple]').setInputFiles(path);
}

function plan(megabytes: number): string {
  const path = join(tmpdir(), `plan-${process.pid}-${count}.bin`);
  writeFileSync(path, randomBytes(megabytes * MIB));
  return path;
}

/** Let parts of uploads through until there are so many, then break every one off; returns what ends that. */
async function cutAfter(page: Page, parts: number): Promise<{ sent: string[]; mend(): Promise<void> }> {
  const sent: string[] = [];
  const handler = async (route: Route) => {
    if (route.request().method() !== "PUT") return route.fallback();
    if (sent.length >= parts) return route.abort("connectionreset");
    sent.push(route.request().headers()["content-range"] ?? "");
    return route.continue();
  };
  await page.route(isUpload, handler);
  return { sent, mend: () => page.unroute(isUpload, handler) };
}

test("an upload that is cut goes on where it was, and says how far it is", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const ranges: string[] = [];
  page.on("request", (request) => {
    if (request.method() === "PUT" && isUpload(new URL(request.url())))
      ranges.push(request.headers()["content-range"] ?? "");
  });
  const { sent, mend } = await cutAfter(page, 1);
  await choose(page, plan(12));
  const bar = page.getByRole("progressbar", { name: /^Uploading plan/ });
  await until(
    async () => Number(await bar.getAttribute("value")),
    (value) => value > 0 && value < 100,
  );
  await files(page)
    .getByText(/^[\d.]+ MB of 12\.0 MB/)
    .waitFor();
  expect(await page.getByRole("button", { name: "Send" }).isDisabled()).toBe(true);
  await until(
    async () => ranges.length,
    (tries) => tries > 1,
  );
  await mend();
  await until(
    () => state(page),
    (now) => now === "done",
  );
  const start = (range: string) => Number(/bytes (\d+)-/.exec(range)?.[1]);
  // Nothing that the server had was sent again.
  expect(sent).toHaveLength(1);
  expect(ranges.filter((range) => start(range) === 0)).toHaveLength(1);
  await write(page, "The plan");
  await message(page, "The plan")
    .getByRole("button", { name: /^Download plan/ })
    .waitFor();
});

test("an upload is cancelled, and the server keeps nothing of it", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const discarded = page.waitForRequest(
    (request) => request.method() === "DELETE" && request.url().includes("/attachments/"),
  );
  await cutAfter(page, 1);
  await choose(page, plan(12));
  await until(
    async () => Number(await page.getByRole("progressbar").getAttribute("value")),
    (value) => value > 0,
  );
  await page.getByRole("button", { name: /^Cancel plan/ }).click();
  const answer = await (await discarded).response();
  expect(answer?.status()).toBe(204);
  expect(await files(page).count()).toBe(0);
});

test("a file goes on uploading while another chat is shown", async () => {
  await world.server.chat(ada, [ben], "Attic");
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const { mend } = await cutAfter(page, 1);
  await choose(page, plan(12));
  await until(
    async () => Number(await page.getByRole("progressbar").getAttribute("value")),
    (value) => value > 0,
  );
  await openChat(page, "Attic");
  expect(await files(page).count()).toBe(0);
  await mend();
  await openChat(page, "Garden");
  await until(
    () => state(page),
    (now) => now === "done",
  );
});

test("what was uploaded stays with the draft, and what was begun goes on by hand", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const small = join(tmpdir(), `note-${process.pid}-${count}.txt`);
  writeFileSync(small, "beans");
  await choose(page, small);
  await until(
    () => state(page),
    (now) => now === "done",
  );
  await cutAfter(page, 1);
  const path = plan(12);
  await choose(page, path);
  await until(
    async () => Number(await page.getByRole("progressbar").getAttribute("value")),
    (value) => value > 0,
  );
  await page.getByRole("textbox", { name: "Message", exact: true }).fill("With both");
  // A chat that is left keeps its draft at once.
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("list", { name: "Chats" }).getByText("With both").waitFor();
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await page.reload();
  await online(page);
  await openChat(page, "Garden");
  await until(
    () => files(page).count(),
    (there) => there === 2,
  );
  const begun = files(page).nth(1);
  expect(await begun.getAttribute("data-state")).toBe("left");
  expect(await page.getByRole("button", { name: "Send" }).isDisabled()).toBe(true);
  await begun.locator('input[type="file"]').setInputFiles(small);
  await begun.getByText("That is another file.").waitFor();
  await begun.locator('input[type="file"]').setInputFiles(path);
  await until(
    () => begun.getAttribute("data-state"),
    (now) => now === "done",
  );
  expect(await page.getByRole("textbox", { name: "Message", exact: true }).inputValue()).toBe("With both");
  await page.getByRole("button", { name: "Send" }).click();
  await until(
    () =>
      message(page, "With both")
        .getByRole("button", { name: /^Download/ })
        .count(),
    (cards) => cards === 2,
  );
});

test("a picture is shown as large as it is shown, from an address that stays the same", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const asked: string[] = [];
  page.on("request", (request) => {
    const { pathname, search } = new URL(request.url());
    if (request.resourceType() === "image" && pathname.startsWith("/v1/")) asked.push(search);
  });
  const buffer = await page.screenshot();
  await page
    .locator('form input[type="file"][multiple]')
    .setInputFiles([{ name: "beds.png", mimeType: "image/png", buffer }]);
  await until(
    () => state(page),
    (now) => now === "done",
  );
  await write(page, "The beds");
  const shown = message(page, "The beds").locator("img");
  await until(
    () => shown.evaluate((element: HTMLImageElement) => element.naturalWidth),
    (width) => width === 320,
  );
  const address = await shown.getAttribute("src");
  await page.reload();
  await until(
    () => shown.getAttribute("src"),
    (again) => again === address,
  );
  expect(new Set(asked)).toEqual(new Set(["?size=320"]));
  await message(page, "The beds").getByRole("button", { name: "beds.png" }).click();
  const viewer = page.getByRole("dialog", { name: "Image" });
  await until(
    () => viewer.locator("img").evaluate((element: HTMLImageElement) => element.naturalWidth),
    (width) => width > 320,
  );
});

test("the files of a chat are listed, and lead to their messages", async () => {
  const page = await world.signedIn(ada);
  await openChat(page, "Garden");
  const path = join(tmpdir(), `note-${process.pid}-${count}.txt`);
  writeFileSync(path, "beans");
  await choose(page, path);
  await until(
    () => state(page),
    (now) => now === "done",
  );
  await write(page, "The note");
  await message(page, "The note")
    .getByRole("button", { name: /^Download note/ })
    .waitFor();
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("button", { name: "Files of this chat" }).click();
  const dialog = page.getByRole("dialog", { name: "Files of this chat" });
  await dialog.getByRole("button", { name: /^Show note/ }).click();
  await dialog.waitFor({ state: "detached" });
  await message(page, "The note").waitFor();
});
