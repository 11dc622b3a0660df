/** A picture of a page, light and dark, wide and narrow. */

import { mkdirSync } from "node:fs";
import type { Page } from "playwright-core";

const FOLDER = process.env.SCREENSHOTS ?? "screenshots";
const ONLY = process.env.ONLY ?? "";
const SIZES = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } };
const THEMES = ["light", "dark"] as const;

export async function shoot(page: Page, name: string): Promise<void> {
  if (ONLY && !name.includes(ONLY)) return;
  mkdirSync(FOLDER, { recursive: true });
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
