/** A menu in the top layer: arrows move, a letter finds, Escape closes and gives the focus back. */

import { useEffect, useRef } from "preact/hooks";
import c from "./controls.module.css";
import { Icon, type IconName } from "./Icon.js";

export interface MenuItem {
  readonly name: string;
  readonly icon: IconName;
  readonly isDanger?: boolean;
  do(): void;
}

/** Where it opens: the corner of a button, or where the pointer was. */
export interface Place {
  readonly x: number;
  readonly y: number;
}

const MARGIN = 8;

type MenuProps = { name: string; items: readonly MenuItem[]; place: Place; onClose: () => void };

export function Menu({ name, items, place, onClose }: MenuProps) {
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = menu.current;
    if (!element) return undefined;
    const before = document.activeElement;
    element.showPopover();
    const { width, height } = element.getBoundingClientRect();
    const left = Math.min(place.x, innerWidth - width - MARGIN);
    const top = place.y + height > innerHeight - MARGIN ? place.y - height : place.y;
    element.style.left = `${Math.max(MARGIN, left)}px`;
    element.style.top = `${Math.max(MARGIN, top)}px`;
    element.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    return () => {
      const isInside = element.contains(document.activeElement) || document.activeElement === document.body;
      if (isInside && before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, [place]);
  const move = (event: KeyboardEvent) => {
    const all = [...(menu.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next = nextItem(event.key, at, all);
    if (event.key === "Escape" || event.key === "Tab") onClose();
    if (event.key === "Escape" || next) {
      event.preventDefault();
      event.stopPropagation();
    }
    next?.focus();
  };
  return (
    <div
      ref={menu}
      popover="auto"
      role="menu"
      tabIndex={-1}
      aria-label={name}
      class={c.menu}
      onKeyDown={move}
      onToggle={(event) => event.newState === "closed" && onClose()}
    >
      {items.map((item) => (
        <button
          key={item.name}
          type="button"
          role="menuitem"
          tabIndex={-1}
          class={`${c.item} ${item.isDanger ? c.itemDanger : ""}`}
          onClick={() => {
            onClose();
            item.do();
          }}
        >
          <Icon name={item.icon} size={18} />
          {item.name}
        </button>
      ))}
    </div>
  );
}

function nextItem(key: string, at: number, all: readonly HTMLElement[]): HTMLElement | undefined {
  const count = all.length;
  if (key === "ArrowDown") return all[(at + 1) % count];
  if (key === "ArrowUp") return all[(at - 1 + count) % count];
  if (key === "Home") return all[0];
  if (key === "End") return all[count - 1];
  if (key.length !== 1 || key === " ") return undefined;
  const begins = (element: HTMLElement) =>
    element.textContent?.trim().toLowerCase().startsWith(key.toLowerCase());
  return [...all.slice(at + 1), ...all.slice(0, at + 1)].find(begins);
}
