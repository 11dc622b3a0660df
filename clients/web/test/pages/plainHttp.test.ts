/** A server in a network at home, without https: browsers give pages less there. */

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { message, openChat, type Somebody, signIn, until, World, write } from "./world.js";

const NAME = "chat.test";

class PlainWorld extends World {
  override get address(): string {
    return this.server.url.replace("127.0.0.1", NAME);
  }
}

let world: PlainWorld;
let ada: Somebody;
let ben: Somebody;
beforeAll(async () => {
  world = await PlainWorld.open({ PARLEY_SERVER_HOSTS: NAME, PARLEY_ACCOUNTS_REGISTRATION: "open" }, [
    `--host-resolver-rules=MAP ${NAME} 127.0.0.1`,
  ]);
  ada = await world.server.person("ada", "Ada");
  ben = await world.server.person("ben", "Ben");
  await world.server.chat(ada, [ben], "Garden");
});
afterEach(() => world.leave());
afterAll(() => world.close());

test("everything that can work does, and the page says what is missing and why", async () => {
  const page = await world.signedIn(ada);
  const has = await page.evaluate(() => [
    isSecureContext,
    "serviceWorker" in navigator,
    "locks" in navigator,
  ]);
  expect(has).toEqual([false, false, false]);
  await openChat(page, "Garden");
  await write(page, "without https");
  await until(
    () => message(page, "without https").getAttribute("data-status"),
    (status) => status === "sent" || status === "delivered",
  );
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByText("Notifications need https").waitFor();
  await page.getByText(/^This page was opened without https/).waitFor();
  expect(await page.getByRole("switch", { name: "Notifications", exact: true }).isDisabled()).toBe(true);
});

test("two tabs share what they write, and who is signed in stays so", async () => {
  const one = await world.signedIn(ada);
  await openChat(one, "Garden");
  const other = await one.context().newPage();
  await other.goto(world.address);
  await openChat(other, "Garden");
  await write(other, "from the second tab");
  await message(one, "from the second tab").waitFor();
  await one.reload();
  await message(one, "from the second tab").waitFor();
});

test("a device that is removed is signed out there, too", async () => {
  const page = await world.page();
  await signIn(page, ben.username);
  const { devices } = await world.server.call<{ devices: { device_id: string; current: boolean }[] }>(
    ben.token,
    "GET",
    "/v1/devices",
  );
  const browser = devices.find(({ current }) => !current);
  await world.server.call(ben.token, "DELETE", `/v1/devices/${browser?.device_id}`);
  await page.getByRole("heading", { name: /^Sign in to / }).waitFor();
});
