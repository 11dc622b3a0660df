/** What axe finds on a page as it is. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

const AXE = readFileSync(
  createRequire(`${process.cwd()}/package.json`).resolve("axe-core/axe.min.js"),
  "utf8",
);
export const SIZES = [
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
];

interface Violation {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[];
}

/** What is serious of this page as it is, light and dark, wide and narrow. */
export async function serious(page: Page): Promise<string[]> {
  const found: string[] = [];
  for (const viewport of SIZES) {
    await page.setViewportSize(viewport);
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      const violations = await page.evaluate(async () => {
        // Colours that are still changing are neither of the two themes.
        await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        await Promise.all(document.getAnimations().map((animation) => animation.finished.catch(() => {})));
        const { axe } = window as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } };
        return (await axe.run()).violations;
      });
      for (const { id, impact, nodes } of violations as Violation[]) {
        if (impact !== "serious" && impact !== "critical") continue;
        found.push(
          `${viewport.width} ${colorScheme} ${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 120)} ${failureSummary.slice(0, 240)}`).join(" | ")}`,
        );
      }
    }
  }
  await page.setViewportSize(SIZES[0] as (typeof SIZES)[0]);
  return found;
}

/** The page's own policy forbids scripts that are not its own: the test brings axe by the protocol of the browser. */
export async function withAxe(page: Page): Promise<Page> {
  await page.evaluate(AXE);
  return page;
}
