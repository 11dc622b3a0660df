/** The log of a chat around a place. What the entries say is shown for a reason, which is recorded before. */

import { useSignal } from "@preact/signals";
import type { LogLine, LogLines } from "parley-chat";
import { Button, Field } from "parley-ui/controls.js";
import { wholeTime } from "parley-ui/time.js";
import { useEffect, useMemo } from "preact/hooks";
import { api } from "../app/api.js";
import { Feed } from "../app/feed.js";
import { nameOf, useNames } from "../app/names.js";
import { hrefOf, place, refine } from "../app/route.js";
import { Danger } from "../parts/Danger.js";
import { Act, Filters, Id, Name, quiet, Section, Tag } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";
import c from "./OneChat.module.css";

const LINES = 50;
const REASON_CHARS_MAX = 1_000;

/** A position without an entry stands in the list as well. */
type Line = LogLine | { readonly sequence: number; readonly isVoid: true };

export function ChatLog({ chatId }: { chatId: string }) {
  const around = place.value.query.get("around") ?? "";
  const wanted = useSignal(around);
  const isAsking = useSignal(false);
  const feed = useMemo(() => new Feed(() => linesOf(chatId, around), true), [chatId, around]);
  useEffect(() => {
    wanted.value = around;
    return feed.start();
  }, [feed]);
  const show = (at: string) => refine(hrefOf("chat", chatId, { around: at }));
  const page = feed.value.value;
  useNames(page?.entries.map(({ sender_id }) => sender_id) ?? []);
  return (
    <Section title={s.log}>
      <Filters onSubmit={() => show(wanted.value.trim().replace(/^#/, ""))}>
        <Field label={s.around} value={wanted} autoComplete="off" />
        <Button type="submit">{s.show}</Button>
        <Button
          disabled={!page || page.from_sequence <= 1}
          onClick={() => page && show(String(Math.max(1, page.from_sequence - LINES / 2)))}
        >
          {s.older}
        </Button>
        <Button
          disabled={!page || page.to_sequence >= page.head}
          onClick={() => page && show(String(Math.min(page.head, page.to_sequence + LINES / 2)))}
        >
          {s.newer}
        </Button>
        <Button onClick={() => (around ? show("") : void feed.reload())}>{s.end}</Button>
        <Act
          onClick={() => {
            isAsking.value = true;
          }}
        >
          {s.reveal}
        </Act>
      </Filters>
      <Shown feed={feed} empty={{ when: ({ entries }) => entries.length === 0, say: s.noEntries }}>
        {(lines) => (
          <>
            <p class={quiet}>{s.linesOf(lines.from_sequence, lines.to_sequence, lines.head)}</p>
            <Table
              name={s.log}
              columns={COLUMNS}
              rows={withVoids(lines)}
              keyOf={({ sequence }) => sequence}
              isChosen={(line) => isWanted(line, around)}
            />
          </>
        )}
      </Shown>
      {isAsking.value && (
        <Danger
          action={s.reveal}
          needsReason
          reasonMax={REASON_CHARS_MAX}
          onDo={async (reason) => {
            feed.value.value = await linesOf(chatId, around, reason);
          }}
          onClose={() => {
            isAsking.value = false;
          }}
        >
          <p>{s.revealHint}</p>
        </Danger>
      )}
    </Section>
  );
}

const linesOf = (chatId: string, around: string, reveal?: string) =>
  api("GET /v1/admin/chats/{chat_id}/log", {
    path: { chat_id: chatId },
    query: { limit: LINES, ...(around && { around }), ...(reveal && { reveal }) },
  });

/** The newest first, as they are read: voids between them. */
function withVoids({ entries, voids }: LogLines): Line[] {
  const lines: Line[] = [...entries, ...voids.map((sequence) => ({ sequence, isVoid: true as const }))];
  return lines.sort((one, other) => other.sequence - one.sequence);
}

const isWanted = (line: Line, around: string) =>
  String(line.sequence) === around || ("message_id" in line && line.message_id === around);

const COLUMNS: readonly Column<Line>[] = [
  { name: s.position, cell: ({ sequence }) => `#${number(sequence)}`, isNumber: true },
  {
    name: s.kind,
    cell: (line) =>
      "isVoid" in line ? (
        <Tag look="warn">{s.void}</Tag>
      ) : (
        <Tag look={line.deleted ? "bad" : "plain"}>{line.deleted ? s.deletedKind(line.kind) : line.kind}</Tag>
      ),
  },
  {
    name: s.entry,
    cell: (line) => {
      if ("isVoid" in line) return <span class={quiet}>{s.voidHint}</span>;
      return (
        <>
          <Id of={line.message_id} href={hrefOf("message", line.message_id)} />
          {line.content !== undefined && (
            <pre class={c.lineContent} dir="auto">
              {line.content || s.noText}
            </pre>
          )}
        </>
      );
    },
  },
  {
    name: s.from,
    cell: (line) =>
      "isVoid" in line ? "" : <Name of={nameOf(line.sender_id)} href={hrefOf("person", line.sender_id)} />,
  },
  {
    name: s.when,
    cell: (line) =>
      "isVoid" in line ? (
        ""
      ) : (
        <time dateTime={line.created_at}>{wholeTime(Date.parse(line.created_at))}</time>
      ),
  },
  {
    name: s.size,
    cell: (line) => ("isVoid" in line ? "" : s.bytes(line.size, line.attachments)),
    isNumber: true,
  },
];
