/** What to say of an error of the API. */

import { BadToken, CannotConnect, RequestRefused } from "parley-chat";
import { reasonOf } from "parley-ui/pageSession.js";
import { s } from "../strings.en.js";

export interface Said {
  readonly title: string;
  readonly hint: string;
}

const STORE_CODES = new Set(["store_unavailable", "store_damaged", "outcome_unknown"]);

export function said(error: unknown): Said {
  if (error instanceof CannotConnect) return { title: s.unreachable, hint: s.unreachableHint };
  if (error instanceof BadToken) return { title: s.sessionOver, hint: "" };
  if (!(error instanceof RequestRefused)) return { title: s.failed, hint: reasonOf(error) };
  if (error.code === "forbidden") return { title: s.needsOperator, hint: error.reason };
  if (STORE_CODES.has(error.code)) return { title: s.storeAway, hint: `${s.storeAwayHint} ${error.reason}` };
  return { title: reasonOf(error), hint: "" };
}

/** In one line, for a dialog. */
export function told(error: unknown): string {
  const { title, hint } = said(error);
  return error instanceof CannotConnect ? title : [title, hint].filter(Boolean).join(" ");
}
