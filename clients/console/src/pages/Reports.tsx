/** Messages that members reported: read, act, resolve. */

import { useSignal } from "@preact/signals";
import type { ReportInfo, ReportStatus } from "parley-chat";
import { Select } from "parley-ui/controls.js";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { nameOf, useNames } from "../app/names.js";
import { hrefOf, place, refine } from "../app/route.js";
import { Page } from "../parts/Page.js";
import { Filters, Name, quiet, Tag, Time } from "../parts/parts.js";
import { Empty, Shown } from "../parts/Shown.js";
import { type Column, More, Table } from "../parts/Table.js";
import { s } from "../strings.en.js";
import { OneReport } from "./OneReport.js";
import { usePages } from "./pagesOf.js";

const w = s.ofReports;

export default function Reports() {
  return place.value.id ? <OneReport key={place.value.id} reportId={place.value.id} /> : <AllReports />;
}

function AllReports() {
  const status = place.value.query.get("status") ?? "open";
  const isBusy = useSignal(false);
  const pages = usePages([status], async (before) => {
    // Without the messages: the list is asked for again and again, and who sees one is recorded.
    const of = { ...(status && { status: status as ReportStatus }), ...(before && { before }) };
    const query = { ...of, brief: true };
    const { reports, next } = await api("GET /v1/admin/reports", { query });
    return { items: reports, next };
  });
  const feed = useFeed(pages.load, [pages]);
  const found = feed.value.value?.items ?? [];
  useNames(found.flatMap((report) => [report.sender_id, report.reporter_id]));
  return (
    <Page title={s.reports}>
      <Filters onSubmit={() => void feed.reload()}>
        <Select
          label={w.status}
          value={status}
          options={w.statuses}
          onChange={(value) => {
            refine(`#/reports?status=${value}`);
          }}
        />
      </Filters>
      <Shown feed={feed}>
        {({ items, next }) =>
          items.length ? (
            <>
              <Table name={s.reports} columns={COLUMNS} rows={items} keyOf={(report) => report.report_id} />
              {next && (
                <More
                  isBusy={isBusy.value}
                  onMore={async () => {
                    isBusy.value = true;
                    await pages.more(feed);
                    isBusy.value = false;
                  }}
                />
              )}
            </>
          ) : (
            <Empty>{status === "open" ? w.none : w.noneSuch}</Empty>
          )
        }
      </Shown>
    </Page>
  );
}

const COLUMNS: readonly Column<ReportInfo>[] = [
  {
    name: w.why,
    cell: (report) => <Name of={report.reason || w.noReason} href={hrefOf("report", report.report_id)} />,
  },
  {
    name: w.sender,
    cell: ({ sender_id }) => <Name of={nameOf(sender_id)} href={hrefOf("person", sender_id)} />,
  },
  {
    name: w.reporter,
    cell: ({ reporter_id }) => <Name of={nameOf(reporter_id)} href={hrefOf("person", reporter_id)} />,
  },
  { name: w.when, cell: ({ created_at }) => <Time at={created_at} /> },
  { name: w.status, cell: (report) => <State of={report} /> },
];

/** What it says now, or why it says nothing. */
export function Message({ of: { message } }: { of: ReportInfo }) {
  if (!message) return <span class={quiet}>{w.gone}</span>;
  if (message.deleted) return <span class={quiet}>{w.deleted}</span>;
  return <Name of={message.content} />;
}

export function State({ of }: { of: ReportInfo }) {
  return of.status === "open" ? (
    <Tag look="warn">{w.open}</Tag>
  ) : (
    <Tag look="good">{of.outcome || w.resolved}</Tag>
  );
}
