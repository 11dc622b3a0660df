/** The pages of the console, in the order of the navigation. README.md says how one is made. */

import type { ComponentType } from "preact";
import { s } from "../strings.en.js";

export interface PageEntry {
  /** In the address, `#/{name}`; the others are pages of one thing, `#/{name}/{id}`. */
  readonly names: readonly [string, ...string[]];
  readonly title: string;
  /** A chunk of its own: only its first visit loads it. */
  readonly load: () => Promise<{ default: ComponentType }>;
}

export const PAGES: readonly PageEntry[] = [
  { names: [""], title: s.overview, load: () => import("./Overview.js") },
  { names: ["messages", "message"], title: s.messages, load: () => import("./Messages.js") },
  { names: ["chats", "chat"], title: s.chats, load: () => import("./Chats.js") },
  { names: ["people", "person"], title: s.people, load: () => import("./People.js") },
  { names: ["dlq"], title: s.deadLetters, load: () => import("./DeadLetters.js") },
  { names: ["reports", "report"], title: s.reports, load: () => import("./Reports.js") },
  { names: ["webhooks"], title: s.webhooks, load: () => import("./Webhooks.js") },
  { names: ["push"], title: s.push, load: () => import("./Push.js") },
  { names: ["nodes"], title: s.nodes, load: () => import("./Nodes.js") },
  { names: ["jobs"], title: s.jobs, load: () => import("./Jobs.js") },
  { names: ["topics"], title: s.topics, load: () => import("./Topics.js") },
  { names: ["programs"], title: s.programs, load: () => import("./Programs.js") },
  { names: ["links"], title: s.links, load: () => import("./Links.js") },
  { names: ["audit"], title: s.audit, load: () => import("./Audit.js") },
];

export const pageOf = (name: string) => PAGES.find(({ names }) => names.includes(name));
