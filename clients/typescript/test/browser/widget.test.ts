import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FOLDER } from "../package/bundle.js";
import { Chromium } from "./browser.js";
import { given, ParleyServer } from "./server.js";

const SHOP = join(FOLDER, "../../examples/widget/shop.js");
const CHAT_SECRET = "at least 32 bytes that only the shop and Parley know";
const JWT = {
  PARLEY_AUTH_JWT_SECRET: CHAT_SECRET,
  PARLEY_AUTH_JWT_ISSUER: "https://shop.example.com",
  PARLEY_AUTH_JWT_AUDIENCE: "parley",
};

let folder = "";
let shop: ChildProcess;
let address = "";
let chatToken = "";
let server: ParleyServer;
let browser: Chromium;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "parley-widget-"));
  Object.assign(process.env, JWT);
  const port = await freePort();
  address = `http://127.0.0.1:${port}`;
  server = new ParleyServer(join(folder, "data"), [], [address]);
  browser = new Chromium(join(folder, "profile"));
  await Promise.all([server.start(), browser.start()]);
  await parley("user", "add", "shop", "--bot");
  chatToken = (await parley("token", "shop", "--api", "--scopes", "admin")).trim();
  const env = {
    ...process.env,
    CHAT_SECRET,
    CHAT_TOKEN: chatToken,
    CHAT_URL: server.url,
    PORT: String(port),
  };
  shop = spawn(process.execPath, [SHOP], { env, stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: shop.stdout as NodeJS.ReadableStream })) {
    if (line.startsWith("shop on")) break;
  }
});

afterAll(async () => {
  await browser.kill();
  shop.kill();
  await server.kill();
  await rm(folder, { recursive: true, force: true });
});

async function parley(...words: readonly string[]): Promise<string> {
  const run = promisify(execFile);
  return (await run(given("PARLEY_PROGRAM"), [...words, "--data", join(folder, "data")])).stdout;
}

async function freePort(): Promise<number> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  listener.close();
  await once(listener, "close");
  return port;
}

async function admin<Answer>(method: string, path: string, body?: object): Promise<Answer> {
  const headers = { Authorization: `Bearer ${chatToken}`, "Content-Type": "application/json" };
  const answer = await fetch(`${server.url}/v1/admin/${path}`, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as Answer;
}

test("a visitor of the shop writes, is answered, and writes on while the server is killed", async () => {
  const page = await browser.context.newPage();
  const trouble: string[] = [];
  page.on("console", (said) => /Content Security Policy/.test(said.text()) && trouble.push(said.text()));
  page.on("pageerror", (error) => trouble.push(String(error)));
  await page.goto(address);
  await page.getByRole("button", { name: "Chat with us" }).click();
  await page.getByRole("status").getByText("Log in to chat with us.").waitFor();
  await page.getByLabel("Your name").fill("ann");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForURL(`${address}/`);
  const widget = page.locator("parley-widget");
  await widget.getByRole("button", { name: "Chat with us" }).click();
  const rows = (status: string) => widget.locator(`li[data-status="${status}"]`);
  const write = async (text: string) => {
    await widget.getByLabel("Message").fill(text);
    await widget.getByRole("button", { name: "Send" }).click();
  };
  await write("Do you have teapots?");
  await rows("sent").getByText("Do you have teapots?").waitFor();

  const { user_id } = await admin<{ user_id: string }>("GET", "users/ext:ann");
  const { chats } = await admin<{ chats: { chat_id: string }[] }>("GET", `users/${user_id}`);
  const chatId = chats[0]?.chat_id ?? "";
  const answer = "<b onclick=alert(1)>Three</b> are left.";
  await widget.getByRole("button", { name: "Close the chat" }).click();
  await admin("POST", `chats/${chatId}/messages`, { sender_id: "ext:support", content: answer });
  await widget.getByRole("button", { name: "Chat with us (1 unread)" }).click();
  await rows("sent").getByText(answer).waitFor();
  expect(await widget.locator("li b").count()).toBe(0);
  await widget.getByRole("button", { name: "Close the chat" }).click();
  await widget.getByRole("button", { name: "Chat with us", exact: true }).click();

  await server.kill();
  await widget.getByRole("status").getByText("Offline.").waitFor();
  await write("Then two, please.");
  await rows("queued").getByText("Then two, please.").waitFor();
  await server.start();
  await rows("sent").getByText("Then two, please.").waitFor();
  await page.reload();
  await widget.getByRole("button", { name: "Chat with us" }).click();
  await rows("sent").getByText("Then two, please.").waitFor();
  expect(await widget.locator("li").allTextContents()).toEqual([
    "Do you have teapots?",
    answer,
    "Then two, please.",
  ]);
  expect(trouble).toEqual([]);
});

test("who is not logged in to the shop has no chat, and no token", async () => {
  expect((await fetch(`${address}/chat-session`)).status).toBe(401);
  expect((await fetch(`${address}/parley-chat/../shop.js`)).status).toBe(404);
});
