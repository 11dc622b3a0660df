/** People in browsers of their own, on the chat of a real server. */

import type { BrowserContextOptions, Page } from "playwright-core";
import { World as AnyWorld, PASSWORD, type Somebody } from "../../../ui/test/world.js";

export { PASSWORD, type Said, Server, type Somebody, until } from "../../../ui/test/world.js";

/** A server, the chat, and a browser, for the tests of one file. */
export class World extends AnyWorld {
  /** Somebody's browser, signed in. */
  async signedIn(somebody: Pick<Somebody, "username">, options: BrowserContextOptions = {}): Promise<Page> {
    const page = await this.page(options);
    await signIn(page, somebody.username);
    return page;
  }
}

export async function signIn(page: Page, username: string, password = PASSWORD): Promise<void> {
  await page.getByRole("textbox", { name: "Username" }).fill(username);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await online(page);
}

export async function signUp(page: Page, username: string, displayName: string): Promise<void> {
  await page.getByRole("link", { name: "Create account" }).click();
  await page.getByRole("textbox", { name: "Username" }).fill(username);
  await page.getByRole("textbox", { name: "Display name" }).fill(displayName);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByLabel("Password again").fill(PASSWORD);
  await page.getByRole("button", { name: "Create account" }).click();
  await online(page);
}

export async function online(page: Page): Promise<void> {
  await page
    .locator('[role=status][aria-label="Connection"][data-state="online"]')
    .waitFor({ state: "attached" });
}

export async function openChat(page: Page, title: string): Promise<void> {
  await page.getByRole("list", { name: "Chats" }).getByRole("link", { name: title, exact: true }).click();
  await page.getByRole("heading", { level: 1, name: title }).waitFor();
}

export async function write(page: Page, text: string): Promise<void> {
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  await field.fill(text);
  await field.press("Enter");
}

export const message = (page: Page, text: string) =>
  page.getByRole("feed", { name: "Messages" }).getByRole("article").filter({ hasText: text });
