import { readdirSync } from "node:fs";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { message, online, openChat, signUp, until, World, write } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterEach(() => world.leave());
afterAll(() => world.close());

test("two people sign up, find each other, write, and see that it was read", async () => {
  const ada = await world.page();
  const ben = await world.page();
  await signUp(ada, "ada", "Ada Lovelace");
  await signUp(ben, "ben", "Ben");

  await ada.getByRole("button", { name: "New chat" }).click();
  const dialog = ada.getByRole("dialog", { name: "New chat" });
  await dialog.getByRole("textbox", { name: "Username" }).fill("ben");
  await dialog.getByRole("button", { name: "Add" }).click();
  await dialog.getByRole("button", { name: "Start chat" }).click();
  await ada.getByRole("heading", { level: 1, name: "Ben" }).waitFor();

  await write(ada, "Do you like tea?");
  await until(
    () => message(ada, "Do you like tea?").getAttribute("data-status"),
    (status) => status === "delivered",
  );
  expect(await message(ada, "Do you like tea?").getByRole("img").getAttribute("aria-label")).toBe(
    "Delivered",
  );

  const link = ben.getByRole("list", { name: "Chats" }).getByRole("link", { name: "Ada Lovelace" });
  await until(
    () => link.getAttribute("data-unread"),
    (unread) => unread === "1",
  );
  await openChat(ben, "Ada Lovelace");
  await message(ben, "Do you like tea?").waitFor();
  await until(
    () => message(ada, "Do you like tea?").getAttribute("data-status"),
    (status) => status === "read",
  );
  await until(
    () => link.getAttribute("data-unread"),
    (unread) => unread === "0",
  );

  await write(ben, "Very much!");
  await message(ada, "Very much!").waitFor();
  expect(await message(ada, "Very much!").getAttribute("aria-label")).toBe("Ben: Very much!");
  await until(
    () => ada.title(),
    (title) => title === "Ben – Parley",
  );
});

test("somebody who signs out leaves nothing behind", async () => {
  const page = await world.page();
  await signUp(page, "cleo", "Cleo");
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: /^Sign in to / }).waitFor();
  const left = await until(
    () => page.evaluate(async () => (await indexedDB.databases()).map(({ name }) => name)),
    (names) => names.length === 0,
  );
  expect(left).toEqual([]);
  expect(await page.evaluate(() => localStorage.getItem("parley.person"))).toBeNull();
});

test("who has signed in stays so when the page is loaded again, and reads what is there without the server", async () => {
  const page = await world.page();
  await signUp(page, "dora", "Dora");
  const dora = await world.server.token("dora");
  const chat = await world.server.chat(dora, [], "Notes");
  await openChat(page, "Notes");
  await write(page, "kept on this device");
  await until(
    () => message(page, "kept on this device").getAttribute("data-status"),
    (status) => status === "sent",
  );
  await page.reload();
  await online(page);
  await message(page, "kept on this device").waitFor();
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
  await page.reload();
  await online(page);
  await world.server.kill();
  await page.reload();
  await message(page, "kept on this device").waitFor();
  await page.locator('[role=status][data-state="offline"]').waitFor();
  expect(page.url()).toContain(chat);
});

test("a tab that nobody looks at says so", async () => {
  const page = await world.page();
  const said: string[] = [];
  page.on("websocket", (socket) =>
    socket.on("framesent", ({ payload }) => {
      if (String(payload).includes('"attention"')) said.push(String(payload));
    }),
  );
  await signUp(page, "gil", "Gil");
  await page.evaluate(() => {
    Object.defineProperty(document, "hasFocus", { value: () => false });
    dispatchEvent(new Event("blur"));
  });
  await until(
    async () => said.at(-1),
    (frame) => frame?.includes('"looking":false') ?? false,
  );
});

test("two tabs show the same, whichever has the connection", async () => {
  const one = await world.page();
  await signUp(one, "finn", "Finn");
  const finn = await world.server.token("finn");
  await world.server.chat(finn, [], "Notes");
  const other = await one.context().newPage();
  await other.goto(world.address);
  await openChat(one, "Notes");
  await openChat(other, "Notes");
  await write(other, "from the second tab");
  await message(one, "from the second tab").waitFor();
  await write(one, "from the first tab");
  await message(other, "from the first tab").waitFor();
  await one.close();
  await write(other, "and the first one is gone");
  await until(
    () => message(other, "and the first one is gone").getAttribute("data-status"),
    (status) => status === "sent",
  );
});

test("a wrong password is told, and nobody is signed in", async () => {
  const page = await world.page();
  await page.getByRole("textbox", { name: "Username" }).fill("nobody");
  await page.getByLabel("Password", { exact: true }).fill("not the password");
  await page.getByRole("button", { name: "Sign in" }).click();
  expect(await page.getByRole("alert").textContent()).toBe("Wrong username or password.");
});

test("parts of the page that nobody has opened are there without the server, too", async () => {
  const parts = readdirSync(new URL("../../dist/assets", import.meta.url)).filter((name) =>
    /\.(js|css)$/.test(name),
  );
  const page = await world.page();
  await signUp(page, "hana", "Hana");
  await until(
    () =>
      page.evaluate(async () => {
        const names = await caches.keys();
        const kept = await Promise.all(names.map(async (name) => (await caches.open(name)).keys()));
        return kept.flat().map(({ url }) => new URL(url).pathname);
      }),
    (kept) => parts.every((name) => kept.includes(`/assets/${name}`)),
  );
  await world.server.kill();
  await page.reload();
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("heading", { name: "Settings" }).waitFor();
  await page.keyboard.press("Control+Shift+F");
  await page.getByRole("dialog", { name: "Search" }).waitFor();
});
