/** Keys that work everywhere. */

import { keep, kept } from "parley-ui/kept.js";

/** Single letters act on messages, unless the person turned them off. */
export const areKeysOn = () => kept("keys") !== "off";
export const setKeysOn = (isOn: boolean) => keep("keys", isOn ? null : "off");

export interface KeyActions {
  switchChat(): void;
  search(): void;
  details(): void;
  shortcuts(): void;
  /** Nothing nearer has used the Escape. Whether there was something to leave. */
  leave(): boolean;
}

/** The regions that F6 goes through, in their order. */
const REGIONS = ["#search-chats", "#messages", "#composer", "#details"];

export function listen(actions: KeyActions): () => void {
  const keys = (event: KeyboardEvent) => {
    if (event.defaultPrevented) return;
    if (event.key === "Escape") {
      if (actions.leave()) event.preventDefault();
      return;
    }
    const act = actionOf(event, actions);
    if (!act) return;
    event.preventDefault();
    act();
  };
  addEventListener("keydown", keys);
  return () => removeEventListener("keydown", keys);
}

function actionOf(event: KeyboardEvent, actions: KeyActions): (() => void) | null {
  const isControl = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  if (key === "f6") return () => nextRegion(event.shiftKey ? -1 : 1);
  if (isControl && !event.shiftKey && key === "k") return actions.switchChat;
  if (isControl && event.shiftKey && key === "f") return actions.search;
  if (isControl && event.shiftKey && key === "i") return actions.details;
  if (isControl && key === "/") return actions.shortcuts;
  const isWriting = (event.target as HTMLElement).closest("input, textarea, select, [contenteditable]");
  if (key === "?" && !isWriting && areKeysOn()) return actions.shortcuts;
  return null;
}

function nextRegion(step: number): void {
  const there = REGIONS.flatMap((selector) => document.querySelector<HTMLElement>(selector) ?? []).filter(
    (element) => element.checkVisibility(),
  );
  const now = there.findIndex((element) => element.contains(document.activeElement) || sharesRegion(element));
  const next = there[(now + step + there.length) % there.length];
  const message = next?.id === "messages" ? next.querySelector<HTMLElement>('article[tabindex="0"]') : null;
  (message ?? next)?.focus();
}

const sharesRegion = (element: HTMLElement) =>
  element.id === "search-chats" && !!element.closest("nav")?.contains(document.activeElement);
