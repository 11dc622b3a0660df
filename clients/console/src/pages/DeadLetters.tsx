/** What could not be delivered: by error, by hour, one by one; delivered again or given up after a look. */

import { type Signal, useComputed, useSignal } from "@preact/signals";
import type { Answer, DeadLetterFilter, DeadLetterInfo } from "parley-chat";
import { Field, Select } from "parley-ui/controls.js";
import { wholeTime } from "parley-ui/time.js";
import { useEffect } from "preact/hooks";
import { api } from "../app/api.js";
import { type Feed, useFeed } from "../app/feed.js";
import { hrefOf, place, refine } from "../app/route.js";
import { Page } from "../parts/Page.js";
import { columns, Filters, Name, quiet, row, Section, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, More, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";
import c from "./DeadLetters.module.css";
import { OneDeadLetter } from "./OneDeadLetter.js";
import { Orders } from "./Replay.js";

type FoundDeadLetters = Answer<"GET /v1/admin/dlq">;

const PAGE_SIZE = 200;
const TYPING_MS = 400;
const STATUS_LOOKS = { pending: "warn", replayed: "good", permanently_failed: "bad" } as const;
const TEXTS = ["error", "chat_id", "recipient", "topic"] as const;
const TIMES = ["after", "before"] as const;

export default function DeadLetters() {
  if (place.value.id) return <OneDeadLetter key={place.value.id} dlqId={place.value.id} />;
  return <AllDeadLetters />;
}

function AllDeadLetters() {
  const query = place.value.query;
  const chosen = filterOf(query);
  const key = JSON.stringify(chosen);
  const pages = useSignal(1);
  const marked = useSignal<ReadonlySet<string>>(new Set());
  const feed = useFeed(() => deadLettersOf(chosen, pages.peek()), [key]);
  useEffect(() => {
    marked.value = new Set();
    pages.value = 1;
  }, [key]);
  const fields = useFields(query);
  const apply = () => refine(hrefOf("dlq", "", valuesOf(fields)));
  const done = () => {
    marked.value = new Set();
    void feed.reload();
  };
  return (
    <Page title={s.deadLetters}>
      <Filters onSubmit={apply}>
        <Select
          label={s.status}
          value={fields.status.value}
          options={s.deadLetterStatuses}
          onChange={(value) => {
            fields.status.value = value;
            apply();
          }}
        />
        {TEXTS.map((name) => (
          <Typed key={name} label={s.deadLetterFilters[name]} value={fields[name]} onTyped={apply} />
        ))}
        {TIMES.map((name) => (
          <Typed
            key={name}
            label={s.deadLetterFilters[name]}
            value={fields[name]}
            type="datetime-local"
            onTyped={apply}
          />
        ))}
      </Filters>
      <Orders
        chosen={() =>
          marked.value.size
            ? { ids: [...marked.value] }
            : { filter: filterOf(new URLSearchParams(valuesOf(fields))) }
        }
        what={marked.value.size ? s.marked(marked.value.size) : s.thisFilter(feed.value.value?.total ?? null)}
        onDone={done}
      />
      <Shown
        feed={feed}
        empty={{ when: ({ total }) => total === 0, say: <Nothing isFiltered={isFiltered(chosen)} /> }}
      >
        {(page) => (
          <>
            <Summary chosen={chosen} />
            <List page={page} pages={pages} marked={marked} feed={feed} />
          </>
        )}
      </Shown>
    </Page>
  );
}

const LAST_HOUR = { names: ["deliveries_per_second"], seconds: 3_600 } as const;

function Nothing({ isFiltered: hasOther }: { isFiltered: boolean }) {
  const series = useFeed(() => api("GET /v1/admin/series", { query: LAST_HOUR }), []).value.value;
  const rates = series?.series.deliveries_per_second ?? [];
  const delivered = Math.round(rates.reduce((sum, rate) => sum + rate * (series?.step_seconds ?? 0), 0));
  return (
    <>
      <strong>{s.noDeadLetters}</strong>
      {hasOther ? <a href={hrefOf("dlq")}>{s.withoutFilter}</a> : <span>{s.deliveredLately(delivered)}</span>}
    </>
  );
}

type Fields = Readonly<Record<"status" | (typeof TEXTS)[number] | (typeof TIMES)[number], Signal<string>>>;

function useFields(query: URLSearchParams): Fields {
  return {
    status: useSignal(query.get("status") ?? "pending"),
    error: useFollowing(query.get("error") ?? ""),
    chat_id: useSignal(query.get("chat_id") ?? ""),
    recipient: useSignal(query.get("recipient") ?? ""),
    topic: useSignal(query.get("topic") ?? ""),
    after: useSignal(query.get("after") ?? ""),
    before: useSignal(query.get("before") ?? ""),
  };
}

/** A field that a link of the page may fill. */
function useFollowing(value: string): Signal<string> {
  const field = useSignal(value);
  useEffect(() => {
    field.value = value;
  }, [value]);
  return field;
}

const valuesOf = (fields: Fields) =>
  Object.fromEntries(Object.entries(fields).map(([name, { value }]) => [name, value.trim()]));

type TypedProps = {
  label: string;
  value: Signal<string>;
  onTyped: () => void;
  type?: "text" | "datetime-local";
};

/** A field that takes effect when somebody stops typing. */
function Typed({ label, value, onTyped, type = "text" }: TypedProps) {
  const timer = useSignal<ReturnType<typeof setTimeout> | undefined>(undefined);
  const later = () => {
    clearTimeout(timer.peek());
    timer.value = setTimeout(onTyped, TYPING_MS);
  };
  return (
    <div onInput={later}>
      <Field label={label} value={value} type={type} autoComplete="off" />
    </div>
  );
}

function filterOf(query: URLSearchParams): DeadLetterFilter {
  const status = query.get("status") ?? "pending";
  const filter: Record<string, string> = status === "all" ? {} : { status };
  for (const name of TEXTS) {
    const value = query.get(name);
    if (value) filter[name] = value;
  }
  for (const name of TIMES) {
    const value = Date.parse(query.get(name) ?? "");
    if (!Number.isNaN(value)) filter[name] = new Date(value).toISOString();
  }
  return filter as DeadLetterFilter;
}

const isFiltered = (filter: DeadLetterFilter) => Object.keys(filter).some((name) => name !== "status");

/** The newest pages, as one. */
async function deadLettersOf(filter: DeadLetterFilter, pages: number): Promise<FoundDeadLetters> {
  const ask = (page: string) =>
    api("GET /v1/admin/dlq", {
      query: { ...(filter as Record<string, string>), brief: true, limit: PAGE_SIZE, ...(page && { page }) },
    });
  let found = await ask("");
  for (let count = 1; count < pages && found.next; count += 1) {
    const further = await ask(found.next);
    found = { ...further, records: [...found.records, ...further.records] };
  }
  return found;
}

/** How many match, by what they have in common. */
function Summary({ chosen }: { chosen: DeadLetterFilter }) {
  const feed = useFeed(
    () => api("GET /v1/admin/dlq/summary", { query: chosen as Record<string, string> }),
    [JSON.stringify(chosen)],
  );
  const filter = { ...(chosen as Record<string, string>), status: chosen.status ?? "all" };
  return (
    <Shown feed={feed}>
      {({ errors, hours, recipients }) => (
        <>
          <div class={columns}>
            <Counts
              name={s.errors}
              of={s.error}
              rows={errors.map(({ error, count }) => ({
                name: error,
                count,
                href: hrefOf("dlq", "", { ...filter, error }),
              }))}
            />
            <Counts
              name={s.recipients}
              of={s.recipient}
              rows={recipients.map(({ recipient, count }) => ({
                name: recipient,
                count,
                href: hrefOf("dlq", "", { ...filter, recipient }),
              }))}
            />
            <Counts
              name={s.hours}
              of={s.hour}
              rows={hours.map(({ at, count }) => ({ name: hourOf(Date.parse(at)), count }))}
            />
          </div>
        </>
      )}
    </Shown>
  );
}

interface Count {
  readonly name: string;
  readonly count: number;
  readonly href?: string;
}

const COUNTS_SHOWN = 12;

function Counts({ name, of, rows }: { name: string; of: string; rows: readonly Count[] }) {
  const most = Math.max(1, ...rows.map(({ count }) => count));
  const shown: readonly Column<Count>[] = [
    { name: of, cell: (row) => <Name of={row.name} {...(row.href && { href: row.href })} /> },
    { name: s.count, cell: ({ count }) => number(count), isNumber: true },
    { name: s.share, cell: ({ count }) => <Bar of={count} most={most} />, isUnnamed: true },
  ];
  return (
    <Section title={name}>
      <Table name={name} columns={shown} rows={rows.slice(0, COUNTS_SHOWN)} keyOf={(row) => row.name} />
      {rows.length > COUNTS_SHOWN && <p class={quiet}>{s.andMore(rows.length - COUNTS_SHOWN)}</p>}
    </Section>
  );
}

function Bar({ of, most }: { of: number; most: number }) {
  return (
    <svg class={c.bar} viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
      <rect width={Math.max(1, (of / most) * 100)} height="10" rx="2" />
    </svg>
  );
}

const hourFormat = new Intl.DateTimeFormat(undefined, {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});
const hourOf = (at: number) => hourFormat.format(at);

type ListProps = {
  page: FoundDeadLetters;
  pages: Signal<number>;
  marked: Signal<ReadonlySet<string>>;
  feed: Feed<FoundDeadLetters>;
};

function List({ page, pages, marked, feed }: ListProps) {
  const isAll = useComputed(() => page.records.every(({ dlq_id }) => marked.value.has(dlq_id))).value;
  const mark = (ids: readonly string[], isOn: boolean) => {
    const next = new Set(marked.value);
    for (const id of ids) isOn ? next.add(id) : next.delete(id);
    marked.value = next;
  };
  return (
    <Section
      title={s.deadLettersOneByOne}
      actions={
        <label class={`${row} ${quiet}`}>
          <input
            type="checkbox"
            class={c.mark}
            checked={isAll}
            onChange={(event) =>
              mark(
                page.records.map(({ dlq_id }) => dlq_id),
                event.currentTarget.checked,
              )
            }
          />
          {s.markShown(page.records.length)}
        </label>
      }
    >
      <Table
        name={s.deadLetters}
        columns={[markColumn(marked, mark), ...COLUMNS]}
        rows={page.records}
        keyOf={({ dlq_id }) => dlq_id}
        isChosen={({ dlq_id }) => marked.value.has(dlq_id)}
      />
      {page.next && (
        <More
          onMore={() => {
            pages.value += 1;
            void feed.reload();
          }}
        />
      )}
    </Section>
  );
}

const markColumn = (
  marked: Signal<ReadonlySet<string>>,
  mark: (ids: readonly string[], isOn: boolean) => void,
): Column<DeadLetterInfo> => ({
  name: s.mark,
  isUnnamed: true,
  cell: ({ dlq_id }) => (
    <input
      type="checkbox"
      class={c.mark}
      aria-label={s.markOf(dlq_id)}
      checked={marked.value.has(dlq_id)}
      onChange={(event) => mark([dlq_id], event.currentTarget.checked)}
    />
  ),
});

const COLUMNS: readonly Column<DeadLetterInfo>[] = [
  {
    name: s.when,
    isHead: true,
    cell: ({ dlq_id, dlq_timestamp }) => (
      <a href={hrefOf("dlq", dlq_id)} title={wholeTime(Date.parse(dlq_timestamp))}>
        <Time at={dlq_timestamp} />
      </a>
    ),
  },
  {
    name: s.error,
    cell: ({ error, error_detail }) => (
      <>
        <Name of={error} />
        {error_detail && (
          <span class={quiet}>
            <Name of={error_detail} />
          </span>
        )}
      </>
    ),
  },
  {
    name: s.chat,
    cell: ({ chat_id, sequence }) => (
      <a href={hrefOf("chat", chat_id, { around: sequence })}>
        {chat_id} #{number(sequence)}
      </a>
    ),
  },
  { name: s.recipient, cell: ({ original_message }) => <Name of={original_message.recipient} /> },
  { name: s.attempts, cell: ({ retry_count }) => number(retry_count), isNumber: true },
  { name: s.status, cell: (one) => <Status of={one} /> },
];

export function Status({ of: one }: { of: Pick<DeadLetterInfo, "status" | "queued"> }) {
  if (one.queued) return <Tag look="accent">{s.queued}</Tag>;
  return <Tag look={STATUS_LOOKS[one.status]}>{s.statusOf[one.status]}</Tag>;
}
