/** How the page looks on this device. `theme.js` applies it before the first paint. */

import { signal } from "@preact/signals";
import { keep, kept } from "./kept.js";

export const theme = signal(kept("theme") ?? "system");
export const textSize = signal(kept("text") ?? "normal");

export function chooseTheme(value: string): void {
  theme.value = value;
  keep("theme", value === "system" ? null : value);
  set("theme", value === "system" ? null : value);
}

export function chooseTextSize(value: string): void {
  textSize.value = value;
  keep("text", value === "normal" ? null : value);
  set("text", value === "normal" ? null : value);
}

function set(name: string, value: string | null): void {
  if (value === null) delete document.documentElement.dataset[name];
  else document.documentElement.dataset[name] = value;
}
