/** What operators did: who, what, to whom, with which outcome. */

import { type Signal, useSignal } from "@preact/signals";
import type { AuditRecord } from "parley-chat";
import { Button, Field } from "parley-ui/controls.js";
import { useRef } from "preact/hooks";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { nameOf, useNames } from "../app/names.js";
import { hrefOf, place, refine } from "../app/route.js";
import { told } from "../app/words.js";
import { Page } from "../parts/Page.js";
import { Filters, Id, Name, quiet, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, More, Table } from "../parts/Table.js";
import { s } from "../strings.en.js";
import { csvOf, download } from "./csv.js";
import { usePages } from "./pagesOf.js";

const w = s.ofAudit;
const NAMES = ["actor", "action", "target", "since", "until"] as const;
const PAGE = 100;
const EXPORT_PAGE = 1_000;
const EXPORTED_MAX = 50_000;

type Conditions = Record<(typeof NAMES)[number], string>;

export default function Audit() {
  const chosen = Object.fromEntries(
    NAMES.map((name) => [name, place.value.query.get(name) ?? ""]),
  ) as Conditions;
  const key = JSON.stringify(chosen);
  const pages = usePages([key], async (before) => {
    const { records, next } = await api("GET /v1/admin/audit", {
      query: { ...queryOf(chosen), limit: PAGE, ...(before && { before }) },
    });
    return { items: records, next };
  });
  const feed = useFeed(pages.load, [pages]);
  useNames((feed.value.value?.items ?? []).map(({ actor }) => (actor.startsWith("user_") ? actor : "")));
  return (
    <Page title={s.audit} actions={<Export chosen={chosen} />}>
      <Conditions chosen={chosen} />
      <Shown feed={feed} empty={{ when: ({ items, next }) => !items.length && next === null, say: w.none }}>
        {({ items, next }) => (
          <>
            <Table name={s.audit} columns={COLUMNS} rows={items} keyOf={(record) => record.audit_id} />
            {next && <More onMore={() => void pages.more(feed)} />}
          </>
        )}
      </Shown>
    </Page>
  );
}

function Conditions({ chosen }: { chosen: Conditions }) {
  const fields = useRef<Record<string, Signal<string>>>({});
  for (const name of NAMES) fields.current[name] = useSignal(chosen[name]);
  const of = fields.current as Record<(typeof NAMES)[number], Signal<string>>;
  const apply = () =>
    refine(hrefOf("audit", "", Object.fromEntries(NAMES.map((name) => [name, of[name].value.trim()]))));
  return (
    <Filters onSubmit={apply}>
      <Field label={w.actor} value={of.actor} type="search" />
      <Field label={w.action} value={of.action} type="search" />
      <Field label={w.target} value={of.target} type="search" />
      <Field label={w.since} value={of.since} type="date" />
      <Field label={w.until} value={of.until} type="date" />
      <Button type="submit">{s.apply}</Button>
    </Filters>
  );
}

/** Days are those of the operator's own calendar. */
function queryOf({ since, until, ...rest }: Conditions): Partial<Conditions> {
  const given = Object.entries({ ...rest, since: timeOf(since), until: timeOf(until) });
  return Object.fromEntries(given.filter(([, value]) => value));
}

function timeOf(day: string): string {
  const at = Date.parse(`${day}T00:00`);
  return Number.isNaN(at) ? "" : new Date(at).toISOString();
}

const COLUMNS: readonly Column<AuditRecord>[] = [
  { name: w.when, cell: ({ at }) => <Time at={at} /> },
  {
    name: w.actor,
    cell: (record) => (
      <>
        <Name
          of={nameOf(record.actor)}
          {...(record.actor.startsWith("user_") && { href: hrefOf("person", record.actor) })}
        />
        {record.token_name && (
          <div class={quiet}>
            <Name of={w.by(record.token_name)} />
          </div>
        )}
      </>
    ),
  },
  { name: w.action, isHead: true, isWhole: true, cell: ({ action }) => <Name of={action} /> },
  { name: w.target, cell: ({ target_id }) => target_id && <Target of={target_id} /> },
  { name: w.outcome, cell: ({ outcome }) => <Outcome of={outcome} /> },
  { name: w.detail, cell: ({ detail }) => detail && <Name of={detail} /> },
  { name: w.request, cell: ({ request_id }) => request_id && <Id of={request_id} /> },
];

const PLACES: readonly (readonly [prefix: string, page: string])[] = [
  ["user_", "person"],
  ["chat_", "chat"],
  ["msg_", "message"],
  ["rep_", "report"],
  ["dlq_", "dlq"],
];

function Target({ of }: { of: string }) {
  const page = PLACES.find(([prefix]) => of.startsWith(prefix))?.[1];
  return <Name of={of} {...(page && { href: hrefOf(page, of) })} />;
}

function Outcome({ of }: { of: string }) {
  const look = of === "done" ? "good" : of === "begun" ? "warn" : "bad";
  return <Tag look={look}>{of}</Tag>;
}

/** All records of these conditions, as a file. */
function Export({ chosen }: { chosen: Conditions }) {
  const said = useSignal("");
  const isBusy = useSignal(false);
  const write = async () => {
    isBusy.value = true;
    said.value = "";
    try {
      const { records, isAll } = await everything(chosen);
      download(
        w.csvName,
        csvOf(
          CSV,
          records.map((record) => CSV.map((name) => record[name])),
        ),
      );
      said.value = isAll ? w.exported(records.length) : w.exportedSome(records.length);
    } catch (error) {
      said.value = told(error);
    }
    isBusy.value = false;
  };
  return (
    <>
      <span role="status" aria-label={w.export} class={quiet}>
        {said.value}
      </span>
      <Button onClick={() => void write()} disabled={isBusy.value}>
        {isBusy.value ? w.exporting : w.export}
      </Button>
    </>
  );
}

const CSV = [
  "at",
  "actor",
  "action",
  "target_id",
  "outcome",
  "detail",
  "request_id",
  "token_id",
  "token_name",
  "audit_id",
] as const;

async function everything(chosen: Conditions): Promise<{ records: AuditRecord[]; isAll: boolean }> {
  const records: AuditRecord[] = [];
  let before = "";
  for (;;) {
    const query = { ...queryOf(chosen), limit: EXPORT_PAGE, ...(before && { before }) };
    const page = await api("GET /v1/admin/audit", { query });
    records.push(...page.records);
    if (page.next === null) return { records, isAll: true };
    if (records.length >= EXPORTED_MAX) return { records, isAll: false };
    before = page.next;
  }
}
