/** Pictures of every page and state, light and dark, wide and narrow: `make screenshots`. */

import { mkdirSync } from "node:fs";
import type { Page } from "playwright-core";
import { test } from "vitest";
import { goTo, World } from "../pages/world.js";

const FOLDER = process.env.SCREENSHOTS ?? "screenshots";
const ONLY = process.env.ONLY ?? "";
const SIZES = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } };
const THEMES = ["light", "dark"] as const;

async function shoot(page: Page, name: string): Promise<void> {
  if (ONLY && !name.includes(ONLY)) return;
  for (const [size, viewport] of Object.entries(SIZES)) {
    await page.setViewportSize(viewport);
    for (const colorScheme of THEMES) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.waitForTimeout(250);
      await page.screenshot({ path: `${FOLDER}/console-${name}-${size}-${colorScheme}.png` });
    }
  }
  await page.setViewportSize(SIZES.wide);
}

async function main(): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  const world = await World.open();
  try {
    const olga = await world.server.operator("olga", "Olga Sokolova");
    await shoot(await world.page({}, "/console"), "sign-in");
    const page = await world.console(olga);
    await goTo(page, "Overview");
    await shoot(page, "overview");
  } finally {
    await world.close();
  }
}

test("every page and state", main);
