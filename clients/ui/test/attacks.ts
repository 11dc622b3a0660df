/** What somebody writes to make a page of others run it, and what shows that nothing did. */

import type { Page } from "playwright-core";
import { expect } from "vitest";

export const CORPUS = [
  "<script>window.hacked = 1</script>",
  '<img src=x onerror="window.hacked = 1">',
  "<svg onload=window.hacked=1>",
  '"><svg/onload=window.hacked=1>',
  "javascript:window.hacked=1",
  "[click](javascript:window.hacked=1)",
  "java\u0000script:window.hacked=1",
  'https://a.example/"onmouseover="window.hacked=1',
  "https://a.example/'><script>window.hacked=1</script>",
  "data:text/html,<script>window.hacked=1</script>",
  "{{constructor.constructor('window.hacked=1')()}}",
  `$${"{window.hacked=1}"}`,
  "<iframe srcdoc='<script>parent.hacked=1</script>'>",
  "<a href=javascript:window.hacked=1>x</a>",
  "<style>*{background:url(https://evil.example)}</style>",
  "<base href=https://evil.example/>",
  "`<script>window.hacked=1</script>`",
  "```\n</code></pre><script>window.hacked=1</script>\n```",
  "**<b onclick=window.hacked=1>x</b>**",
  "\u202eecilA",
  "z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308algo",
  "A".repeat(1000),
];

/** What the browser kept the page from doing, and errors of the page. */
export function watched(page: Page): string[] {
  const reports: string[] = [];
  page.on("console", (said) => {
    if (/Content Security Policy|Trusted/i.test(said.text())) reports.push(said.text());
  });
  page.on("pageerror", (error) => reports.push(String(error)));
  page.on("dialog", (dialog) => void dialog.dismiss().then(() => reports.push("a dialog")));
  return reports;
}

export async function nothingRan(page: Page, reports: readonly string[]): Promise<void> {
  expect(await page.evaluate(() => (window as { hacked?: number }).hacked)).toBeUndefined();
  expect(await page.evaluate(() => [...document.scripts].filter((script) => !script.src).length)).toBe(0);
  const links = await page.evaluate(() =>
    [...document.querySelectorAll("a")]
      .map((link) => link.protocol)
      .filter((protocol) => !/^(https?|mailto):$/.test(protocol)),
  );
  expect(links).toEqual([]);
  expect(reports).toEqual([]);
}
