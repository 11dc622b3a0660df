/** What is done again and again: how each job's runs ended, and when the next is due. */

import { useSignal } from "@preact/signals";
import type { JobInfo, JobRun } from "parley-chat";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { hrefOf, place } from "../app/route.js";
import { Danger } from "../parts/Danger.js";
import { Page } from "../parts/Page.js";
import { Act, Name, quiet, Section, Tag, Time } from "../parts/parts.js";
import { Empty, Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { s } from "../strings.en.js";

const w = s.ofJobs;
const LOOKS = { ok: "good", failed: "bad", timed_out: "bad", lease_lost: "plain" } as const;

const keyOf = ({ name, node }: JobInfo) => `${name} ${node}`;

export default function Jobs() {
  const feed = useFeed(() => api("GET /v1/admin/jobs"), []);
  const wanted = useSignal<JobInfo | null>(null);
  const { query } = place.value;
  const chosen = `${query.get("job") ?? ""} ${query.get("node") ?? ""}`;
  const columns: readonly Column<JobInfo>[] = [
    ...COLUMNS,
    {
      name: w.actions,
      isUnnamed: true,
      cell: (job) =>
        job.interval_seconds !== null && (
          <Act
            onClick={() => {
              wanted.value = job;
            }}
          >
            {w.runNow}
          </Act>
        ),
    },
  ];
  const isTroubled = (job: JobInfo) =>
    job.is_overdue || job.last_outcome === "failed" || job.last_outcome === "timed_out";
  return (
    <Page title={s.jobs}>
      <Shown feed={feed}>
        {({ jobs }) => {
          const shown = jobs.find((job) => keyOf(job) === chosen);
          return (
            <>
              {shown && <LastRuns of={shown} />}
              <Table
                name={s.jobs}
                columns={columns}
                rows={[...jobs].sort((a, b) => Number(isTroubled(b)) - Number(isTroubled(a)))}
                keyOf={keyOf}
                isChosen={(job) => keyOf(job) === chosen}
              />
            </>
          );
        }}
      </Shown>
      {wanted.value && (
        <RunNow
          job={wanted.value}
          onDone={() => void feed.reload()}
          onClose={() => {
            wanted.value = null;
          }}
        />
      )}
    </Page>
  );
}

const COLUMNS: readonly Column<JobInfo>[] = [
  {
    name: w.job,
    cell: ({ name, node }) => <Name of={name} href={hrefOf("jobs", "", { job: name, node })} />,
  },
  {
    name: w.node,
    cell: ({ node, scope }) => (
      <>
        {node}
        <div class={quiet}>{scope === "cluster" ? w.oneNode : w.everyNode}</div>
      </>
    ),
  },
  {
    name: w.outcome,
    cell: (job) => (
      <>
        {job.is_overdue && <Tag look="bad">{w.overdue}</Tag>} <Outcome of={job.last_outcome} />
        {job.last_error && (
          <div class={quiet}>
            <Name of={job.last_error} />
          </div>
        )}
      </>
    ),
  },
  { name: w.lastRun, cell: ({ last_finished_at }) => <Time at={last_finished_at} /> },
  {
    name: w.nextRun,
    cell: ({ next_run_at, interval_seconds }) =>
      next_run_at ? <Time at={next_run_at} /> : interval_seconds === null ? w.allTime : "",
  },
  { name: w.failures, isNumber: true, cell: ({ failures, runs }) => w.ofRuns(failures, runs) },
];

function Outcome({ of }: { of: JobRun["outcome"] | null }) {
  return of ? <Tag look={LOOKS[of]}>{w.outcomes[of]}</Tag> : null;
}

function LastRuns({ of: job }: { of: JobInfo }) {
  return (
    <Section title={w.runsOf(job.name)}>
      {job.last_runs.length ? (
        <Table
          name={w.runs}
          columns={RUN_COLUMNS}
          rows={job.last_runs}
          keyOf={(run) => `${run.started_at} ${run.finished_at}`}
        />
      ) : (
        <Empty>{w.noRuns}</Empty>
      )}
    </Section>
  );
}

const RUN_COLUMNS: readonly Column<JobRun>[] = [
  { name: w.ended, cell: ({ finished_at }) => <Time at={finished_at} /> },
  {
    name: w.took,
    isNumber: true,
    cell: ({ started_at, finished_at }) =>
      started_at ? w.seconds(Date.parse(finished_at) - Date.parse(started_at)) : "",
  },
  { name: w.outcome, cell: ({ outcome }) => <Outcome of={outcome} /> },
  { name: w.error, cell: ({ error }) => error && <Name of={error} /> },
];

function RunNow({ job, onDone, onClose }: { job: JobInfo; onDone: () => void; onClose: () => void }) {
  return (
    <Danger
      action={w.runNow}
      isHarmless
      onDo={async () => {
        await api("POST /v1/admin/jobs/{job}/run", { path: { job: job.name }, query: { node: job.node } });
        onDone();
      }}
      onClose={onClose}
    >
      <p>{w.runNowHint(job.name)}</p>
    </Danger>
  );
}
