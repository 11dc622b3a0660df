/** What operators do: people, links, reports, tokens of programs. The server refuses everybody else as `forbidden`. */

import type { Client } from "./client.js";
import type {
  ApiTokenInfo,
  DeletedUser,
  ErasureInfo,
  LinkInfo,
  LinkMade,
  NewInvite,
  ReportInfo,
  ReportStatus,
  UserInfo,
} from "./contract.js";
import { PAGE_ENTRIES_MAX } from "./limits.js";

/** What the person of a client may do as an operator. */
export function operatorsOf(client: Client): Operators {
  return new Operators(client);
}

export class Operators {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** People whose username or display name contains this, or who have this id; everybody without it. */
  findUsers(query = ""): Promise<UserInfo[]> {
    return pages((after) => {
      const paging = { q: query, limit: PAGE_ENTRIES_MAX, ...(after !== null && { after }) };
      return this.#http.call("GET /v1/admin/users", { query: paging });
    }, "users");
  }

  /** Delete an account for good; `erase` also removes what the person wrote. */
  deleteUser(userId: string, { erase = false } = {}): Promise<DeletedUser> {
    const query = erase ? { erase: "bodies" } : {};
    return this.#http.call("DELETE /v1/admin/users/{user_id}", { path: { user_id: userId }, query });
  }

  /** What the erasure of a person has removed so far. */
  erasure(userId: string): Promise<ErasureInfo> {
    return this.#http.call("GET /v1/admin/erasures/{user_id}", { path: { user_id: userId } });
  }

  disable(userId: string): Promise<UserInfo> {
    return this.#http.call("POST /v1/admin/users/{user_id}/disable", { path: { user_id: userId } });
  }

  enable(userId: string): Promise<UserInfo> {
    return this.#http.call("POST /v1/admin/users/{user_id}/enable", { path: { user_id: userId } });
  }

  /** A link by which so many people register. It is shown this once. */
  invite(link: NewInvite = {}): Promise<LinkMade> {
    return this.#http.call("POST /v1/admin/invites", { body: link });
  }

  /** The newest first. */
  invites(): Promise<LinkInfo[]> {
    return pages((before) => {
      const paging = { limit: PAGE_ENTRIES_MAX, ...(before !== null && { before }) };
      return this.#http.call("GET /v1/admin/invites", { query: paging });
    }, "invites");
  }

  async revokeInvite(linkId: string): Promise<void> {
    await this.#http.call("DELETE /v1/admin/invites/{link_id}", { path: { link_id: linkId } });
  }

  /** A link by which a person sets a new password, once. It is shown this once. */
  offerPasswordReset(userId: string, expiresInSeconds: number | null = null): Promise<LinkMade> {
    const body = { expires_in_seconds: expiresInSeconds };
    return this.#http.call("POST /v1/admin/users/{user_id}/password-reset", {
      path: { user_id: userId },
      body,
    });
  }

  /** Those of the newest messages first; null: of any status. */
  reports(status: ReportStatus | null = "open"): Promise<ReportInfo[]> {
    return pages((before) => {
      const paging = { ...(status && { status }), ...(before !== null && { before }) };
      return this.#http.call("GET /v1/admin/reports", { query: paging });
    }, "reports");
  }

  /** Say what came of a report. */
  resolveReport(reportId: string, outcome: string, note = ""): Promise<ReportInfo> {
    const path = { report_id: reportId };
    return this.#http.call("POST /v1/admin/reports/{report_id}/resolve", { path, body: { outcome, note } });
  }

  /** The tokens of programs. */
  async apiTokens(): Promise<readonly ApiTokenInfo[]> {
    return (await this.#http.call("GET /v1/admin/tokens")).tokens;
  }

  async revokeApiToken(tokenId: string): Promise<void> {
    await this.#http.call("DELETE /v1/admin/tokens/{token_id}", { path: { token_id: tokenId } });
  }

  get #http() {
    return this.#client.http;
  }
}

/** Every element of a list that comes in pages. */
async function pages<Name extends string, Item>(
  load: (
    next: string | null,
  ) => Promise<{ readonly next: string | null } & Readonly<Record<Name, readonly Item[]>>>,
  name: Name,
): Promise<Item[]> {
  const found: Item[] = [];
  let next: string | null = null;
  do {
    const page: { readonly next: string | null } & Readonly<Record<Name, readonly Item[]>> = await load(next);
    found.push(...page[name]);
    next = page.next;
  } while (next !== null);
  return found;
}
