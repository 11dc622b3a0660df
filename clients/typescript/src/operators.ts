/** What operators do: people, chats, reports, dead letters, webhooks, servers, links, tokens. The server refuses everybody else as `forbidden`. */

import type { Client } from "./client.js";
import type {
  ApiTokenInfo,
  AuditList,
  BackupList,
  ChatOverview,
  ConnectionInfo,
  DeadLetterFilter,
  DeadLetterJob,
  DeadLetterPreview,
  DeadLetterSummary,
  DeletedUser,
  ErasureInfo,
  JobInfo,
  JobWanted,
  LinkInfo,
  LinkMade,
  ListedChatInfo,
  LogLines,
  MemberPosition,
  NewInvite,
  NodeInfo,
  PersonInfo,
  RecoveryReport,
  ReportActed,
  ReportAction,
  ReportInfo,
  ReportStatus,
  Series,
  ServerOverview,
  UserInfo,
  WebhookInfo,
  WebhookTest,
} from "./contract.js";
import { PAGE_ENTRIES_MAX } from "./limits.js";

/** Which records: all that are given must hold. Times as `2026-01-30T14:30:00.000Z`. */
export interface AuditConditions {
  readonly actor?: string;
  readonly action?: string;
  readonly target?: string;
  readonly since?: string;
  readonly until?: string;
  readonly before?: string;
  readonly limit?: number;
}

/** A part of a log. `reveal`: why somebody must see what it says. */
export interface LogWanted {
  readonly around?: number | string;
  readonly limit?: number;
  readonly reveal?: string;
}

export interface SeriesWanted {
  readonly names?: readonly string[];
  readonly seconds?: number;
  readonly node?: string;
}

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

  /** Do what is asked for about its message and its sender; with an `outcome`, resolve it. */
  actOnReport(reportId: string, action: ReportAction): Promise<ReportActed> {
    const path = { report_id: reportId };
    return this.#http.call("POST /v1/admin/reports/{report_id}/act", { path, body: action });
  }

  /** A person with their chats, devices and sessions. */
  person(userId: string): Promise<PersonInfo> {
    return this.#http.call("GET /v1/admin/users/{user_id}", { path: { user_id: userId } });
  }

  makeOperator(userId: string): Promise<UserInfo> {
    return this.#http.call("PUT /v1/admin/users/{user_id}/operator", { path: { user_id: userId } });
  }

  /** Refused as `last_operator` if there is no other one. */
  endOperator(userId: string): Promise<UserInfo> {
    return this.#http.call("DELETE /v1/admin/users/{user_id}/operator", { path: { user_id: userId } });
  }

  /** A page of what operators did, the newest first. */
  audit(conditions: AuditConditions = {}): Promise<AuditList> {
    return this.#http.call("GET /v1/admin/audit", { query: conditions });
  }

  /** The chats with a part of their title like this, with this id, or of `ann,ben`; the newest first. */
  findChats(query = ""): Promise<ListedChatInfo[]> {
    return pages((after) => {
      const paging = { q: query, ...(after !== null && { after }) };
      return this.#http.call("GET /v1/admin/chats", { query: paging });
    }, "chats");
  }

  /** Its counters and rules, without its messages. */
  chat(chatId: string): Promise<ChatOverview> {
    return this.#http.call("GET /v1/admin/chats/{chat_id}", { path: { chat_id: chatId } });
  }

  /** Every member, and how far each of their devices is. */
  chatMembers(chatId: string): Promise<MemberPosition[]> {
    return pages((after) => {
      const query = after === null ? {} : { after };
      return this.#http.call("GET /v1/admin/chats/{chat_id}/members", { path: { chat_id: chatId }, query });
    }, "members");
  }

  /** The log around a position or a message; what it says only with a reason, which is recorded. */
  chatLog(chatId: string, wanted: LogWanted = {}): Promise<LogLines> {
    const { around, ...rest } = wanted;
    const query = { ...rest, ...(around !== undefined && { around: String(around) }) };
    return this.#http.call("GET /v1/admin/chats/{chat_id}/log", { path: { chat_id: chatId }, query });
  }

  /** Nobody reads it again, also in a direct chat. The reason is recorded. */
  async deleteMessage(chatId: string, messageId: string, reason: string): Promise<void> {
    const path = { chat_id: chatId, message_id: messageId };
    await this.#http.call("DELETE /v1/admin/chats/{chat_id}/messages/{message_id}", {
      path,
      body: { reason },
    });
  }

  /** Take a person out of a group. */
  async removeMember(chatId: string, userId: string): Promise<void> {
    const path = { chat_id: chatId, user_id: userId };
    await this.#http.call("DELETE /v1/admin/chats/{chat_id}/members/{user_id}", { path });
  }

  /** Restore its lost counter; a dry run, unless `dryRun` is false. */
  recoverChat(chatId: string, { dryRun = true, sealHoles = false } = {}): Promise<RecoveryReport> {
    const body = { dry_run: dryRun, seal_holes: sealHoles };
    return this.#http.call("POST /v1/admin/chats/{chat_id}/recover", { path: { chat_id: chatId }, body });
  }

  /** Which dead letters match. */
  previewDeadLetters(filter: DeadLetterFilter = {}): Promise<DeadLetterPreview> {
    return this.#http.call("POST /v1/admin/dlq/preview", { body: { filter } });
  }

  /** Deliver those of a preview again, and no newer one. */
  replayDeadLetters({ token }: DeadLetterPreview): Promise<DeadLetterJob> {
    return this.#http.call("POST /v1/admin/dlq/replay", { body: { token } });
  }

  /** Give those of a preview up for good, and no newer one. */
  discardDeadLetters({ token }: DeadLetterPreview, reason: string): Promise<DeadLetterJob> {
    return this.#http.call("POST /v1/admin/dlq/discard", { body: { token, reason } });
  }

  /** How many match, by error, hour and recipient. */
  deadLetterSummary(filter: DeadLetterFilter = {}): Promise<DeadLetterSummary> {
    const given = Object.entries(filter).filter(([, value]) => value !== null && value !== undefined);
    return this.#http.call("GET /v1/admin/dlq/summary", { query: Object.fromEntries(given) });
  }

  /** How each is, and what it is owed. */
  async webhooks(): Promise<readonly WebhookInfo[]> {
    return (await this.#http.call("GET /v1/admin/webhooks")).webhooks;
  }

  /** Nothing is sent to it; what it is owed waits. `paused: false`: it goes on. */
  pauseWebhook(webhookId: string, paused = true): Promise<WebhookInfo> {
    const path = { webhook_id: webhookId };
    return this.#http.call("PATCH /v1/admin/webhooks/{webhook_id}", { path, body: { paused } });
  }

  /** Send it an event now, and say whether it has arrived. */
  testWebhook(webhookId: string): Promise<WebhookTest> {
    return this.#http.call("POST /v1/admin/webhooks/{webhook_id}/test", { path: { webhook_id: webhookId } });
  }

  overview(): Promise<ServerOverview> {
    return this.#http.call("GET /v1/admin/overview");
  }

  /** The nodes that are alive, and how each is. */
  async nodes(): Promise<readonly NodeInfo[]> {
    return (await this.#http.call("GET /v1/admin/nodes")).nodes;
  }

  /** It finishes what it took, and ends. */
  async drainNode(nodeId: string): Promise<void> {
    await this.#http.call("POST /v1/admin/nodes/{node_id}/drain", { path: { node_id: nodeId } });
  }

  /** Every background job with its last runs. */
  async jobs(): Promise<readonly JobInfo[]> {
    return (await this.#http.call("GET /v1/admin/jobs")).jobs;
  }

  /** Run it now, not when it is due; on this node, if one is named. */
  runJob(job: string, node = ""): Promise<JobWanted> {
    const query = node ? { node } : {};
    return this.#http.call("POST /v1/admin/jobs/{job}/run", { path: { job }, query });
  }

  /** The last hour of these numbers of a node; of all, and of the node that answers, without names. */
  series({ names = [], seconds = 3_600, node = "" }: SeriesWanted = {}): Promise<Series> {
    const query = { names, seconds, ...(node && { node }) };
    return this.#http.call("GET /v1/admin/series", { query });
  }

  /** The open connections of a node; of the one that answers without a name. */
  connections({ userId = "", node = "" } = {}): Promise<ConnectionInfo[]> {
    return pages((after) => {
      const paging = { limit: PAGE_ENTRIES_MAX, ...(after !== null && { after }) };
      const query = { ...paging, ...(userId && { user_id: userId }), ...(node && { node }) };
      return this.#http.call("GET /v1/admin/connections", { query });
    }, "connections");
  }

  /** Its client comes back and goes on where it was. */
  async closeConnection(connectionId: string, node = ""): Promise<void> {
    const path = { connection_id: connectionId };
    await this.#http.call("DELETE /v1/admin/connections/{connection_id}", {
      path,
      query: node ? { node } : {},
    });
  }

  /** Those at `backup.target`, the newest first. */
  backups(): Promise<BackupList> {
    return this.#http.call("GET /v1/admin/backups");
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
