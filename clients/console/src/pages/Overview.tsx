/** How the server is: one sentence, then numbers with their last hour. */

import type { NodeInfo, NodeList } from "parley-chat";
import { Icon } from "parley-ui/Icon.js";
import { clockTime } from "parley-ui/time.js";
import { api } from "../app/api.js";
import { type Feed, useFeed } from "../app/feed.js";
import { type Overview, overview, problemsOf } from "../app/overview.js";
import { hrefOf } from "../app/route.js";
import { Figure } from "../parts/Figure.js";
import { Page } from "../parts/Page.js";
import { grid, Section, Tag } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";
import { NODE_COLUMNS } from "./Nodes.js";
import c from "./Overview.module.css";

type Lines = Readonly<Record<string, readonly number[]>>;

const MS_PER_SECOND = 1_000;
/** A row of the table of the last hour. */
const ROW_SECONDS = 300;
const NAMES = [
  "messages_per_second",
  "persist_seconds_p50",
  "persist_seconds_p99",
  "connections",
  "lag",
  "dead_letters",
] as const;

const rate = (value: number) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const ms = (seconds: number) => seconds * MS_PER_SECOND;
const sayMs = (value: number) =>
  s.ms(value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 }));

export default function OverviewPage() {
  const series = useFeed(() => api("GET /v1/admin/series", { query: { names: NAMES } }), []);
  const nodes = useFeed(() => api("GET /v1/admin/nodes"), []);
  const lines: Lines = series.value.value?.series ?? {};
  return (
    <Page title={s.overview}>
      <Shown feed={overview}>
        {(seen) => (
          <>
            <Health seen={seen} nodes={nodes.value.value?.nodes ?? []} />
            <Numbers seen={seen} lines={lines} />
          </>
        )}
      </Shown>
      <Shown feed={series}>{(one) => <Hour lines={one.series} until={Date.parse(one.until)} />}</Shown>
      <Nodes feed={nodes} />
    </Page>
  );
}

function Health({ seen, nodes }: { seen: Overview; nodes: readonly NodeInfo[] }) {
  const problems = problemsOf(seen, nodes);
  const isHealthy = problems.length === 0;
  return (
    <div
      role="status"
      aria-label={s.health}
      data-state={isHealthy ? "healthy" : "problems"}
      class={`${c.health} ${isHealthy ? "" : c.problems}`}
    >
      <Icon name={isHealthy ? "shield" : "warning"} size={28} />
      <div>
        <strong class={c.sentence}>{isHealthy ? s.healthy : s.problemCount(problems.length)}</strong>
        {isHealthy ? (
          <p class={c.why}>{s.healthyHint(seen.people, seen.chats, seen.nodes)}</p>
        ) : (
          <ul class={c.list}>
            {problems.map(({ text, href }) => (
              <li key={text}>
                <a href={href}>{text}</a>
              </li>
            ))}
          </ul>
        )}
      </div>
      <div class={c.parts}>
        <Part name={s.store} isThere={seen.store_available} />
        {!seen.bus_available && <Part name={s.bus} isThere={false} />}
        {!seen.ephemeral_available && <Part name={s.redis} isThere={false} />}
      </div>
    </div>
  );
}

function Part({ name, isThere }: { name: string; isThere: boolean }) {
  return <Tag look={isThere ? "good" : "bad"}>{isThere ? s.answers(name) : s.isAway(name)}</Tag>;
}

function Numbers({ seen, lines }: { seen: Overview; lines: Lines }) {
  const last = (name: string) => lines[name]?.at(-1) ?? null;
  const [p50, p99] = [last("persist_seconds_p50"), last("persist_seconds_p99")];
  const inMs = (name: string) => lines[name]?.map(ms);
  return (
    <div class={grid}>
      <Figure
        name={s.messagesPerSecond}
        value={seen.messages_per_second}
        say={rate}
        line={lines.messages_per_second}
      />
      <Figure
        name={s.commitP50}
        value={p50 === null ? null : ms(p50)}
        say={sayMs}
        line={inMs("persist_seconds_p50")}
      />
      <Figure
        name={s.commitP99}
        value={p99 === null ? null : ms(p99)}
        say={sayMs}
        line={inMs("persist_seconds_p99")}
      />
      <Figure name={s.connections} value={seen.connections} say={number} line={lines.connections} />
      <Figure name={s.lag} value={seen.lag} say={number} line={lines.lag} />
      <Figure
        name={s.deadLetters}
        value={seen.dead_letters}
        say={number}
        line={lines.dead_letters}
        look={seen.dead_letters ? "warn" : undefined}
      />
      <Figure name={s.openReports} value={seen.open_reports} say={number} />
      <Figure
        name={s.jobsFailing}
        value={seen.jobs_failing}
        say={number}
        look={seen.jobs_failing ? "warn" : undefined}
      />
      <Figure name={s.people} value={seen.people} say={number} />
      <Figure name={s.chats} value={seen.chats} say={number} />
    </div>
  );
}

interface Minutes {
  readonly at: number;
  readonly numbers: Readonly<Record<string, number>>;
}

const COLUMNS: readonly Column<Minutes>[] = [
  { name: s.until, cell: ({ at }) => clockTime(at) },
  { name: s.messagesPerSecond, cell: (one) => rate(one.numbers.messages_per_second ?? 0), isNumber: true },
  { name: s.commitP50, cell: (one) => sayMs(ms(one.numbers.persist_seconds_p50 ?? 0)), isNumber: true },
  { name: s.commitP99, cell: (one) => sayMs(ms(one.numbers.persist_seconds_p99 ?? 0)), isNumber: true },
  { name: s.connections, cell: (one) => number(one.numbers.connections ?? 0), isNumber: true },
  { name: s.lag, cell: (one) => number(one.numbers.lag ?? 0), isNumber: true },
  { name: s.deadLetters, cell: (one) => number(one.numbers.dead_letters ?? 0), isNumber: true },
];

/** The lines as numbers: the highest of each five minutes. */
function Hour({ lines, until }: { lines: Lines; until: number }) {
  return (
    <details class={c.hour}>
      <summary>{s.lastHour}</summary>
      <Table name={s.lastHour} columns={COLUMNS} rows={minutesOf(lines, until)} keyOf={({ at }) => at} />
    </details>
  );
}

const STEP_SECONDS = 5;

function minutesOf(lines: Lines, until: number): Minutes[] {
  const length = Math.max(0, ...Object.values(lines).map((line) => line.length));
  const size = ROW_SECONDS / STEP_SECONDS;
  return Array.from({ length: Math.ceil(length / size) }, (_, back) => {
    const highest = (line: readonly number[]) => {
      const end = line.length - back * size;
      return Math.max(0, ...line.slice(Math.max(0, end - size), Math.max(0, end)));
    };
    return {
      at: until - back * ROW_SECONDS * MS_PER_SECOND,
      numbers: Object.fromEntries(Object.entries(lines).map(([name, line]) => [name, highest(line)])),
    };
  });
}

function Nodes({ feed }: { feed: Feed<NodeList> }) {
  return (
    <Section title={s.nodes} actions={<a href={hrefOf("nodes")}>{s.moreOf(s.nodes)}</a>}>
      <Shown feed={feed}>
        {({ nodes }) => (
          <Table name={s.nodes} columns={NODE_COLUMNS} rows={nodes} keyOf={(one) => one.node_id} />
        )}
      </Shown>
    </Section>
  );
}
