/** Operators in browsers of their own, on the console of a real server. */

import type { BrowserContextOptions, Page } from "playwright-core";
import { World as AnyWorld, PASSWORD, type Somebody } from "../../../ui/test/world.js";

export { PASSWORD, Server, type Somebody, until } from "../../../ui/test/world.js";

/** A server, the console, and a browser, for the tests of one file. */
export class World extends AnyWorld {
  /** A browser at the console, signed in, at a page of it. */
  async console(
    somebody: Pick<Somebody, "username">,
    hash = "",
    options: BrowserContextOptions = {},
  ): Promise<Page> {
    const page = await this.page(options, `/console${hash}`);
    await signIn(page, somebody.username);
    return page;
  }
}

export async function signIn(page: Page, username: string, password = PASSWORD): Promise<void> {
  await fillDoor(page, username, password);
  await page.getByRole("navigation", { name: "Console" }).waitFor({ state: "attached" });
}

export async function fillDoor(page: Page, username: string, password = PASSWORD): Promise<void> {
  await page.getByRole("textbox", { name: "Username" }).fill(username);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
}

export async function goTo(page: Page, name: string): Promise<void> {
  await page.getByRole("navigation", { name: "Console" }).getByRole("link", { name, exact: true }).click();
  await page.getByRole("heading", { level: 1, name }).waitFor();
}
