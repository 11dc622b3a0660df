import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FOLDER } from "../package/bundle.js";
import { Chromium } from "./browser.js";
import { ParleyServer } from "./server.js";

const ROOT = join(FOLDER, "../..");
const KINDS: Record<string, string> = { ".html": "text/html", ".js": "text/javascript" };

let folder = "";
let files: Server;
let origin = "";
let server: ParleyServer;
let browser: Chromium;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "parley-examples-"));
  files = createServer(async (request, response) => {
    const path = normalize(new URL(request.url ?? "/", "http://files").pathname);
    const content = await readFile(join(ROOT, path)).catch(() => null);
    response.writeHead(content ? 200 : 404, { "Content-Type": KINDS[extname(path)] ?? "text/plain" });
    response.end(content);
  }).listen(0, "127.0.0.1");
  await once(files, "listening");
  origin = `http://127.0.0.1:${(files.address() as AddressInfo).port}`;
  server = new ParleyServer(join(folder, "data"), [], [origin]);
  browser = new Chromium(join(folder, "profile"));
  await Promise.all([server.start(), browser.start()]);
});

afterAll(async () => {
  await browser.kill();
  await server.kill();
  files.close();
  await rm(folder, { recursive: true, force: true });
});

test("the page without a bundler signs up, writes, and sends what was written offline", async () => {
  const page = await browser.context.newPage();
  await page.goto(`${origin}/examples/typescript/page.html`);
  await page.getByLabel("Server").fill(server.url);
  await page.getByLabel("Username").fill("ada");
  await page.getByLabel("Password").fill("a long password");
  await page.getByRole("button", { name: "Create account" }).click();
  const write = async (text: string) => {
    await page.getByLabel("Message").fill(text);
    await page.getByRole("button", { name: "Send" }).click();
  };
  const rows = (status: string) => page.locator(`li[data-status="${status}"]`);
  await write("tea");
  await rows("sent").getByText("tea").waitFor();
  await server.kill();
  await page.getByText("Offline.").waitFor();
  await write("milk");
  await rows("queued").getByText("milk").waitFor();
  await server.start();
  await page.reload();
  await rows("sent").getByText("milk").waitFor();
  expect(await page.locator("li").allTextContents()).toEqual(["tea", "milk"]);
});
