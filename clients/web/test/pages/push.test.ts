/** Notifications: from the settings of the page over the server to the service worker, and back to the chat. */

import type { BrowserContext, CDPSession, Page, Worker } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { PushService } from "./pushService.js";
import { message, online, openChat, type Somebody, until, World } from "./world.js";

let world: World;
let ada: Somebody;
let ben: Somebody;
let group: string;
let service: PushService;
let count = 0;

beforeAll(async () => {
  world = await World.open({ PARLEY_PUSH_ALLOWED_NETWORKS: "127.0.0.0/8" });
});
beforeEach(async () => {
  count += 1;
  service = await PushService.open();
  ada = await world.server.person(`ada${count}`, "Ada");
  ben = await world.server.person(`ben${count}`, "Ben");
  group = await world.server.chat(ada, [ben], "Garden");
});
afterEach(async () => {
  await world.leave();
  await service.close();
});
afterAll(() => world.close());

interface Ring {
  readonly chat_id: string;
  readonly tag: string;
  readonly title: string;
  readonly content?: string;
}

const ringOf = (chatId: string, title = "Ben"): Ring => ({
  chat_id: chatId,
  tag: chatId,
  title,
  content: "hello",
});

const asked = (page: Page) => page.getByRole("switch", { name: "Notifications", exact: true });

/** The browser of somebody who has said yes, with a push service that can be reached. */
async function browser(somebody: Somebody, more: { denied?: boolean } = {}): Promise<Page> {
  const page = await world.page(more.denied ? {} : { permissions: ["notifications"] });
  const { subscription } = service;
  const stub = (given: typeof subscription) => {
    let isThere = false;
    const made = {
      ...given,
      toJSON: () => given,
      unsubscribe: async () => {
        isThere = false;
        return true;
      },
    } as unknown as PushSubscription;
    PushManager.prototype.subscribe = async () => {
      isThere = true;
      return made;
    };
    PushManager.prototype.getSubscription = async () => (isThere ? made : null);
  };
  await page.addInitScript(stub, subscription);
  await page.evaluate(stub, subscription);
  await page.getByRole("textbox", { name: "Username" }).fill(somebody.username);
  await page.getByLabel("Password", { exact: true }).fill("a long password");
  await page.getByRole("button", { name: "Sign in" }).click();
  await online(page);
  return page;
}

async function settings(page: Page): Promise<void> {
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("heading", { name: "Settings" }).waitFor();
}

/** The service worker of a browser, and what hands pushes to it. */
class Receiver {
  readonly #cdp: CDPSession;
  readonly #worker: Worker;
  readonly #registration: string;

  private constructor(cdp: CDPSession, worker: Worker, registration: string) {
    this.#cdp = cdp;
    this.#worker = worker;
    this.#registration = registration;
  }

  static async of(context: BrowserContext, page: Page): Promise<Receiver> {
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
    const worker = context.serviceWorkers()[0] ?? (await context.waitForEvent("serviceworker"));
    const cdp = await context.newCDPSession(page);
    const known = new Promise<string>((resolve) =>
      cdp.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
        const found = registrations.find(({ scopeURL }) => scopeURL.startsWith(world.address));
        if (found) resolve(found.registrationId);
      }),
    );
    await cdp.send("ServiceWorker.enable");
    return new Receiver(cdp, worker, await known);
  }

  async deliver(data: object): Promise<void> {
    await this.#cdp.send("ServiceWorker.deliverPushMessage", {
      origin: world.address,
      registrationId: this.#registration,
      data: JSON.stringify(data),
    });
  }

  shown(): Promise<{ title: string; body: string; tag: string }[]> {
    return this.#worker.evaluate(async () => {
      const { registration } = self as unknown as { registration: ServiceWorkerRegistration };
      const all = await registration.getNotifications();
      return all.map(({ title, body, tag }) => ({ title, body, tag }));
    });
  }

  /** As the person clicks a notification; says where the page would be opened if there is none. */
  click(): Promise<string | null> {
    return this.#worker.evaluate(async () => {
      const scope = self as unknown as {
        registration: ServiceWorkerRegistration;
        clients: { openWindow(address: string): Promise<null> };
      };
      let opened: string | null = null;
      scope.clients.openWindow = async (address) => {
        opened = address;
        return null;
      };
      const [notification] = await scope.registration.getNotifications();
      const event = new Event("notificationclick") as Event & { waitUntil(done: Promise<unknown>): void };
      let done: Promise<unknown> = Promise.resolve();
      Object.assign(event, {
        notification,
        waitUntil: (promise: Promise<unknown>) => {
          done = promise;
        },
      });
      self.dispatchEvent(event);
      // A tab comes to the front only for a real click.
      await done.catch(() => {});
      return opened;
    });
  }
}

test("somebody who is away is rung, sees who wrote, and a click leads to the chat", async () => {
  const page = await browser(ada);
  await settings(page);
  await asked(page).click();
  await until(
    () => asked(page).getAttribute("aria-checked"),
    (on) => on === "true",
  );
  const receiver = await Receiver.of(page.context(), page);
  // The person leaves: no page of theirs has a connection any more.
  await page.goto("about:blank");
  await world.server.say(ben, group, "Are you there?");
  await until(
    async () => service.received.length,
    (received) => received === 1,
  );
  const [ring] = service.received as unknown as [Ring];
  // What was written is for nobody's lock screen, unless the person wants it there.
  expect(ring).toMatchObject({ chat_id: group, title: "New message" });
  expect(ring.content).toBeUndefined();

  await receiver.deliver(ring);
  await until(
    () => receiver.shown(),
    (shown) => shown.length === 1 && shown[0]?.tag === ring.tag,
  );
  await receiver.deliver({ ...ring, title: "Later" });
  await until(
    () => receiver.shown(),
    (shown) => shown.length === 1 && shown[0]?.title === "Later",
  );
  expect(await receiver.click()).toBe(`/#/chat/${group}`);
  expect(await receiver.shown()).toEqual([]);
});

test("with the preview the notification says what was written", async () => {
  const page = await browser(ada);
  await settings(page);
  await asked(page).click();
  await page.getByRole("switch", { name: "Show what was written" }).click();
  await until(
    () => page.getByRole("switch", { name: "Show what was written" }).getAttribute("aria-checked"),
    (on) => on === "true",
  );
  await page.goto("about:blank");
  await world.server.say(ben, group, "The beans are ripe");
  await until(
    async () => service.received.length,
    (received) => received === 1,
  );
  expect(service.received[0]).toMatchObject({
    title: "Ben in Garden",
    content: "The beans are ripe",
  });
});

test("nothing is shown for the chat that is looked at, and for others it is", async () => {
  const other = await world.server.chat(ada, [ben], "Attic");
  const page = await browser(ada);
  const receiver = await Receiver.of(page.context(), page);
  await world.server.say(ben, other, "unread");
  // The chat is chosen within the page: the address that the browser knows of it is the one where it began.
  await openChat(page, "Garden");
  await page.bringToFront();
  await receiver.deliver(ringOf(group));
  await receiver.deliver(ringOf(other, "Attic"));
  await until(
    () => receiver.shown(),
    (shown) => shown.length === 1,
  );
  expect((await receiver.shown()).map(({ title }) => title)).toEqual(["Attic"]);
});

test("what is read on another device is not shown any more, and a click goes to the tab that is there", async () => {
  const page = await browser(ada);
  const receiver = await Receiver.of(page.context(), page);
  await world.server.say(ben, group, "read me");
  const link = page.getByRole("list", { name: "Chats" }).getByRole("link", { name: "Garden" });
  await until(
    () => link.getAttribute("data-unread"),
    (unread) => unread === "1",
  );
  await receiver.deliver(ringOf(group));
  await until(
    () => receiver.shown(),
    (shown) => shown.length === 1,
  );
  const phone = await world.signedIn(ada);
  await openChat(phone, "Garden");
  await message(phone, "read me").waitFor();
  await until(
    () => receiver.shown(),
    (shown) => shown.length === 0,
  );
  await receiver.deliver(ringOf(group));
  await until(
    () => receiver.shown(),
    (shown) => shown.length === 1,
  );
  expect(await receiver.click()).toBeNull();
  await page.getByRole("heading", { level: 1, name: "Garden" }).waitFor();
});

test("who signs out is rung no more, and leaves no notification", async () => {
  const page = await browser(ada);
  await settings(page);
  await asked(page).click();
  await until(
    () => asked(page).getAttribute("aria-checked"),
    (on) => on === "true",
  );
  const receiver = await Receiver.of(page.context(), page);
  await world.server.say(ben, group, "unread");
  await receiver.deliver(ringOf(group));
  await until(
    () => receiver.shown(),
    (shown) => shown.length === 1,
  );
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: /^Sign in to / }).waitFor();
  await until(
    () => receiver.shown(),
    (shown) => shown.length === 0,
  );
  expect(
    await page.evaluate(async () => (await navigator.serviceWorker.ready).pushManager.getSubscription()),
  ).toBe(null);
  // The next ring is the end of the registration.
  await world.server.say(ben, group, "and more");
  await until(
    () => world.server.call<{ devices: unknown[] }>(ada.token, "GET", "/v1/me/push"),
    ({ devices }) => devices.length === 0,
  );
  expect(service.received).toEqual([]);
});

test("a browser that does not allow it is told where to change that", async () => {
  const page = await browser(ada, { denied: true });
  await settings(page);
  await asked(page).click({ force: true });
  await page.getByText(/does not allow notifications of this page/).waitFor();
  expect(await asked(page).getAttribute("aria-checked")).toBe("false");
});

test("a server that rings no browsers says so", async () => {
  const page = await browser(ada);
  await page.route("**/v1/push/vapid", (route) =>
    route.fulfill({
      status: 404,
      contentType: "application/json",
      body: JSON.stringify({ code: "not_found", reason: "push is not set up", temporary: false }),
    }),
  );
  await settings(page);
  await asked(page).click();
  await page.getByText("This server sends no notifications to browsers.").waitFor();
});

test("quiet hours are kept for every device", async () => {
  const page = await browser(ada);
  await settings(page);
  await page.getByRole("switch", { name: "Quiet hours" }).click();
  await page.getByLabel("Quiet from").fill("21:30");
  await page.getByLabel("Quiet from").blur();
  await until(
    async () =>
      (await world.server.call<{ do_not_disturb: object | null }>(ada.token, "GET", "/v1/me")).do_not_disturb,
    (hours) => JSON.stringify(hours)?.includes('"from":"21:30","to":"07:00"') ?? false,
  );
});
