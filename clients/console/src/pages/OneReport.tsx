/** One report: the message as it is now, what stands around it, who they are, and what to do about it. */

import { useSignal } from "@preact/signals";
import type { LogLine, ReportInfo } from "parley-chat";
import { Field, Switch } from "parley-ui/controls.js";
import { api } from "../app/api.js";
import { useFeed, useOnce } from "../app/feed.js";
import { nameOf, useNames } from "../app/names.js";
import { hrefOf } from "../app/route.js";
import { Danger } from "../parts/Danger.js";
import { Page } from "../parts/Page.js";
import { Act, Facts, Id, Name, quiet, row, Section, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";
import c from "./OneReport.module.css";
import { Message, State } from "./Reports.js";

const w = s.ofReports;
const LINES = 11;

type Wanted = "resolve" | "delete" | "remove" | "disable" | "reveal";

export function OneReport({ reportId }: { reportId: string }) {
  const feed = useOnce(() => load(reportId), [reportId]);
  const wanted = useSignal<Wanted | null>(null);
  const reason = useSignal("");
  const seen = feed.value.value;
  useNames(seen ? [seen.report.sender_id, seen.report.reporter_id, seen.report.resolved_by ?? ""] : []);
  const actions = (
    <>
      {(["delete", "remove", "disable"] as const).map((one) => (
        <Act
          key={one}
          disabled={
            !seen || (one === "delete" && !isReadable(seen.report)) || (one === "remove" && seen.isDirect)
          }
          onClick={() => {
            wanted.value = one;
          }}
        >
          {ACTIONS[one]}
        </Act>
      ))}
      <Act
        look="primary"
        disabled={seen?.report.status !== "open"}
        onClick={() => {
          wanted.value = "resolve";
        }}
      >
        {w.resolve}
      </Act>
    </>
  );
  return (
    <Page title={w.report} from={{ title: s.reports, href: hrefOf("reports") }}>
      <Shown feed={feed}>
        {({ report, isDirect }) => (
          <>
            <div class={row}>{actions}</div>
            <About of={report} />
            <Section title={w.asItIs}>
              <div class={c.message} data-message>
                <Whole of={report} />
              </div>
            </Section>
            <Around of={report} reason={reason.value} onReveal={() => (wanted.value = "reveal")} />
            {wanted.value && (
              <Order
                wanted={wanted.value}
                report={report}
                isDirect={isDirect}
                onReason={(why) => {
                  reason.value = why;
                }}
                onDone={() => void feed.reload()}
                onClose={() => {
                  wanted.value = null;
                }}
              />
            )}
          </>
        )}
      </Shown>
    </Page>
  );
}

const ACTIONS = { delete: w.deleteIt, remove: w.remove, disable: w.disable } as const;

const isReadable = ({ message }: ReportInfo) => message !== null && !message.deleted;

async function load(reportId: string): Promise<{ report: ReportInfo; isDirect: boolean }> {
  const report = await api("GET /v1/admin/reports/{report_id}", { path: { report_id: reportId } });
  const chat = await api("GET /v1/admin/chats/{chat_id}", { path: { chat_id: report.chat_id } });
  return { report, isDirect: chat.type === "direct" };
}

function About({ of: report }: { of: ReportInfo }) {
  return (
    <Facts
      of={[
        [w.status, <State key="status" of={report} />],
        [w.why, <Name key="why" of={report.reason || w.noReason} />],
        [w.sender, <Person key="sender" id={report.sender_id} />],
        [w.reporter, <Person key="reporter" id={report.reporter_id} />],
        [w.when, <Time key="when" at={report.created_at} />],
        [
          w.chat,
          <Id
            key="chat"
            of={report.chat_id}
            href={hrefOf("chat", report.chat_id, { around: report.sequence })}
          />,
        ],
        [w.position, `#${number(report.sequence)}`],
        [w.message, <Id key="id" of={report.message_id} href={hrefOf("message", report.message_id)} />],
        ...(report.resolved_by
          ? ([
              [w.resolvedBy, <Person key="by" id={report.resolved_by} />],
              [w.note, <Name key="note" of={report.note ?? ""} />],
            ] as const)
          : []),
      ]}
    />
  );
}

/** All that it says now, with its lines. */
function Whole({ of: report }: { of: ReportInfo }) {
  return isReadable(report) ? <bdi>{report.message?.content}</bdi> : <Message of={report} />;
}

function Person({ id }: { id: string }) {
  return <Name of={nameOf(id)} href={hrefOf("person", id)} />;
}

/** The log around the message. `reason`: why somebody must see what it says. */
function Around({ of, reason, onReveal }: { of: ReportInfo; reason: string; onReveal: () => void }) {
  return (
    <Section title={w.around} actions={!reason && <Act onClick={onReveal}>{w.reveal}</Act>}>
      {!reason && <p class={quiet}>{w.aroundHint}</p>}
      <Lines key={reason} of={of} reason={reason} />
    </Section>
  );
}

function Lines({ of: { chat_id, message_id, sequence }, reason }: { of: ReportInfo; reason: string }) {
  const path = { chat_id };
  const query = { around: message_id, limit: LINES, ...(reason && { reveal: reason }) };
  const load = async () => (await api("GET /v1/admin/chats/{chat_id}/log", { path, query })).entries;
  // With a reason each time is a record of the audit log.
  const use = reason ? useOnce : useFeed;
  const feed = use(load, [chat_id, message_id, reason]);
  useNames((feed.value.value ?? []).map(({ sender_id }) => sender_id));
  return (
    <Shown feed={feed}>
      {(lines) => (
        <Table
          name={w.around}
          columns={reason ? [...LINE_COLUMNS, SAYS] : LINE_COLUMNS}
          rows={lines}
          keyOf={(line) => line.sequence}
          isChosen={(line) => line.sequence === sequence}
        />
      )}
    </Shown>
  );
}

const LINE_COLUMNS: readonly Column<LogLine>[] = [
  { name: w.entry, cell: ({ sequence }) => `#${number(sequence)}` },
  { name: w.kind, cell: ({ kind, deleted }) => (deleted ? `${kind}, ${w.deleted.toLowerCase()}` : kind) },
  { name: w.sender, cell: ({ sender_id }) => <Person id={sender_id} /> },
  { name: w.when, cell: ({ created_at }) => <Time at={created_at} /> },
  { name: w.size, isNumber: true, cell: ({ size }) => w.bytes(size) },
];
const SAYS: Column<LogLine> = {
  name: w.says,
  cell: ({ content = "" }) => (content ? <Name of={content} /> : ""),
};

type OrderProps = {
  wanted: Wanted;
  report: ReportInfo;
  isDirect: boolean;
  onReason: (reason: string) => void;
  onDone: () => void;
  onClose: () => void;
};

function Order(props: OrderProps) {
  const { wanted, report, onReason, onDone, onClose } = props;
  const who = nameOf(report.sender_id);
  if (wanted === "resolve") return <Resolve {...props} />;
  if (wanted === "reveal") {
    return (
      <Danger
        action={w.reveal}
        isHarmless
        needsReason
        onDo={async (reason) => onReason(reason)}
        onClose={onClose}
      >
        <p>{w.revealHint}</p>
      </Danger>
    );
  }
  const orders = {
    delete: { hint: w.deleteHint, wish: { delete_message: true } },
    remove: { hint: w.removeHint(who), wish: { remove_sender: true } },
    disable: { hint: w.disableHint(who), wish: { disable_sender: true } },
  } as const;
  const { hint, wish } = orders[wanted];
  const path = { report_id: report.report_id };
  return (
    <Danger
      action={ACTIONS[wanted]}
      needsReason
      onDo={async (reason) => {
        await api("POST /v1/admin/reports/{report_id}/act", { path, body: { reason, ...wish } });
        onDone();
      }}
      onClose={onClose}
    >
      <p>{hint}</p>
      {wanted === "delete" && (
        <div class={c.message}>
          <Whole of={report} />
        </div>
      )}
    </Danger>
  );
}

/** What came of it, and what is done with it in one request. */
function Resolve({ report, isDirect, onDone, onClose }: OrderProps) {
  const outcome = useSignal("");
  const note = useSignal("");
  const [deletes, removes, disables] = [useSignal(false), useSignal(false), useSignal(false)];
  const path = { report_id: report.report_id };
  const acts = deletes.value || removes.value || disables.value;
  return (
    <Danger
      action={w.resolve}
      isHarmless={!acts}
      needsReason={acts}
      isDisabled={!outcome.value.trim()}
      onDo={async (reason) => {
        const told = { outcome: outcome.value.trim(), note: note.value.trim() };
        if (acts) {
          const wanted = {
            delete_message: deletes.value,
            remove_sender: removes.value,
            disable_sender: disables.value,
          };
          await api("POST /v1/admin/reports/{report_id}/act", { path, body: { ...told, ...wanted, reason } });
        } else {
          await api("POST /v1/admin/reports/{report_id}/resolve", { path, body: told });
        }
        onDone();
      }}
      onClose={onClose}
    >
      <p>{w.resolveHint}</p>
      <Field label={w.outcome} value={outcome} hint={w.outcomeHint} maxLength={64} required autoFocus />
      <Field label={w.note} value={note} hint={w.noteHint} />
      {isReadable(report) && <Wish label={w.deleteIt} of={deletes} />}
      {!isDirect && <Wish label={w.remove} of={removes} />}
      <Wish label={w.disable} of={disables} />
    </Danger>
  );
}

function Wish({ label, of }: { label: string; of: { value: boolean } }) {
  return (
    <Switch
      label={label}
      isOn={of.value}
      onChange={(isOn) => {
        of.value = isOn;
      }}
    />
  );
}
