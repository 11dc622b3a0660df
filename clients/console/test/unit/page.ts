/** What the parts of the console need of a page, where there is none. */

import { vi } from "vitest";

export const listeners = new Map<string, () => void>();
export const page = { hidden: false };

vi.stubGlobal("location", { hash: "", origin: "http://127.0.0.1" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("sessionStorage", { getItem: () => null, setItem: () => {}, removeItem: () => {} });
vi.stubGlobal("document", {
  get hidden() {
    return page.hidden;
  },
  addEventListener: (name: string, react: () => void) => listeners.set(name, react),
});
