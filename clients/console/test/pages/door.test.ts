/** Who comes in, how long it lasts, and what it looks like when it is over. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { fillDoor, goTo, PASSWORD, type Somebody, signIn, until, World } from "./world.js";

let world: World;
let olga: Somebody;
beforeAll(async () => {
  world = await World.open();
  olga = await world.server.operator("olga", "Olga");
  await world.server.person("ada", "Ada");
});
afterEach(() => world.leave());
afterAll(() => world.close());

const PAGES = [
  "Overview",
  "Messages",
  "Chats",
  "People",
  "Dead letters",
  "Reports",
  "Webhooks",
  "Push",
  "Nodes",
  "Jobs",
  "Topics",
  "Programs",
  "Links",
  "Audit",
];

test("it is for operators", async () => {
  const page = await world.page({}, "/console");
  await page.getByRole("heading", { level: 1, name: "Parley console" }).waitFor();
  await fillDoor(page, "ada");
  await until(
    () => page.getByRole("alert").textContent(),
    (text) => text?.includes("This needs an operator") ?? false,
  );
  await fillDoor(page, "olga", "a wrong password");
  await until(
    () => page.getByRole("alert").textContent(),
    (text) => text?.includes("Wrong username or password") ?? false,
  );
  await signIn(page, "olga");
  const links = page.getByRole("navigation", { name: "Console" }).getByRole("link");
  expect(await links.count()).toBe(PAGES.length);
  for (const name of PAGES) {
    await page
      .getByRole("navigation", { name: "Console" })
      .getByRole("link", { name, exact: true })
      .waitFor();
  }
});

test("each page has its heading, and its title", async () => {
  const page = await world.console(olga);
  for (const name of PAGES) {
    await goTo(page, name);
    expect(await page.getByRole("heading", { level: 1 }).count()).toBe(1);
    expect(await page.title()).toBe(`${name} – Parley console`);
  }
});

test("the session of the chat does not open the console, and that of the console not the chat", async () => {
  const page = await world.console(olga);
  const [chat, admin] = await page.evaluate(async (password) => {
    const ask = (path: string, body: object) =>
      fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json", "Parley-Page": "1" },
        body: JSON.stringify(body),
      });
    const refreshed = await ask("/v1/web/session/refresh", {});
    const signedIn = await ask("/v1/web/session", { username: "olga", password, device_id: "web-1" });
    const { access_token } = await signedIn.json();
    const looked = await fetch("/v1/admin/overview", {
      headers: { Authorization: `Bearer ${access_token}` },
    });
    return [refreshed.status, looked.status];
  }, PASSWORD);
  expect([chat, admin]).toEqual([401, 403]);
});

test("a tab keeps its session over a reload; another tab has none", async () => {
  const page = await world.console(olga);
  await page.reload();
  await page.getByRole("status", { name: "Age" }).waitFor();
  await until(
    () => page.getByRole("status", { name: "Age" }).textContent(),
    (text) => text === "Live",
  );
  const other = await page.context().newPage();
  await other.goto(`${world.address}/console`);
  await other.getByRole("heading", { level: 1, name: "Parley console" }).waitFor();
});

test("nothing that lasts is where scripts read", async () => {
  const page = await world.console(olga);
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, document.cookie]));
  expect(kept).not.toMatch(/prl_|key/);
  const inTab = await page.evaluate(() => JSON.stringify({ ...sessionStorage }));
  expect(inTab).not.toContain("prl_");
  expect(inTab).not.toContain(PASSWORD);
});

test("a session that ends keeps the page behind its dialog, and goes on after the password", async () => {
  const page = await world.console(olga, "#/people");
  await page.getByRole("heading", { level: 1, name: "People" }).waitFor();
  await world.server.call(olga.token, "DELETE", `/v1/admin/users/${olga.userId}/sessions`);
  const dialog = page.getByRole("dialog", { name: "Your session is over" });
  await dialog.waitFor();
  expect(await page.getByRole("heading", { level: 1, name: "People", includeHidden: true }).count()).toBe(1);
  await dialog.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await dialog.getByRole("button", { name: "Sign in" }).click();
  await dialog.waitFor({ state: "detached" });
  await until(
    () => page.getByRole("status", { name: "Age" }).textContent(),
    (text) => text === "Live",
  );
  olga = await world.server.token("olga").then((again) => ({ ...olga, token: again.token }));
});

test("a server that does not answer makes the page old, and says since when", async () => {
  const page = await world.console(olga);
  const age = page.getByRole("status", { name: "Age" });
  await until(
    () => age.getAttribute("data-stale"),
    (stale) => stale === "false",
  );
  await world.server.kill();
  await until(
    () => age.getAttribute("data-stale"),
    (stale) => stale === "true",
  );
  expect(await age.textContent()).toMatch(/^No answer for \d+ s: as of \d/);
  await world.server.start();
  await until(
    () => age.textContent(),
    (text) => text === "Live",
  );
});

test("Pause stops the questions, and Resume asks at once", async () => {
  const page = await world.console(olga);
  await until(
    () => page.getByRole("status", { name: "Age" }).textContent(),
    (text) => text === "Live",
  );
  await page.getByRole("button", { name: "Pause" }).click();
  let asked = 0;
  page.on("request", (request) => {
    asked += request.url().includes("/v1/admin/overview") ? 1 : 0;
  });
  await page.getByText(/^Paused, ([6-9]|1\d) s old$/).waitFor();
  expect(asked).toBe(0);
  await page.getByRole("button", { name: "Resume" }).click();
  await until(
    async () => asked,
    (count) => count > 0,
  );
});
