/** What the frame knows of the server all the time: what needs somebody stands in the navigation. */

import type { Answer, NodeInfo } from "parley-chat";
import { s } from "../strings.en.js";
import { api } from "./api.js";
import { Feed } from "./feed.js";
import { hrefOf } from "./route.js";

export type Overview = Answer<"GET /v1/admin/overview">;

export interface Trouble {
  readonly text: string;
  readonly href: string;
}

export const overview = new Feed<Overview>(() => api("GET /v1/admin/overview"));

/** What is wrong, the worst first. */
export function problemsOf(seen: Overview, nodes: readonly NodeInfo[] = []): Trouble[] {
  const found: (Trouble | false)[] = [
    !seen.store_available && { text: s.problems.store, href: hrefOf("nodes") },
    !seen.bus_available && { text: s.problems.bus, href: hrefOf("topics") },
    !seen.ephemeral_available && { text: s.problems.redis, href: hrefOf("nodes") },
    ...nodes
      .filter(({ silent }) => silent)
      .map(({ node_id }) => ({ text: s.problems.silent(node_id), href: hrefOf("nodes") })),
    (seen.dead_letters ?? 0) > 0 && {
      text: s.problems.deadLetters(seen.dead_letters ?? 0),
      href: hrefOf("dlq"),
    },
    seen.jobs_failing > 0 && { text: s.problems.jobsFailing(seen.jobs_failing), href: hrefOf("jobs") },
    seen.jobs_overdue > 0 && { text: s.problems.jobsOverdue(seen.jobs_overdue), href: hrefOf("jobs") },
  ];
  return found.filter((one) => one !== false);
}
