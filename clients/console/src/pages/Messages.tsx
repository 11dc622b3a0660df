/** The story of one message: what became of it, for each person and device, and why not. */

import { useSignal } from "@preact/signals";
import type { MessageTimeline, TimelineStep } from "parley-chat";
import { Button, Field } from "parley-ui/controls.js";
import { clockTimeSeconds, wholeTime } from "parley-ui/time.js";
import { useEffect } from "preact/hooks";
import { api } from "../app/api.js";
import { useOnce } from "../app/feed.js";
import { nameOf, useNames } from "../app/names.js";
import { go, hrefOf, place } from "../app/route.js";
import { Page } from "../parts/Page.js";
import { Facts, Filters, Id, Name, quiet, row, Section, Tag } from "../parts/parts.js";
import { Empty, Shown } from "../parts/Shown.js";
import { number, s } from "../strings.en.js";
import c from "./Messages.module.css";

const LOOKS = {
  acknowledged: "good",
  read: "good",
  pushed: "good",
  push_refused: "bad",
  retried: "warn",
  dead_lettered: "bad",
  discarded: "bad",
  skipped: "warn",
} as const;

export default function Messages() {
  const { id, query } = place.value;
  const messageId = useSignal(id);
  const userId = useSignal(query.get("user") ?? "");
  useEffect(() => {
    messageId.value = id;
    userId.value = query.get("user") ?? "";
  }, [id]);
  return (
    <Page title={s.messages}>
      <p class={quiet}>{s.explainHint}</p>
      <Filters
        onSubmit={() =>
          messageId.value.trim() &&
          go(hrefOf("message", messageId.value.trim(), { user: userId.value.trim() }))
        }
      >
        <Field label={s.messageId} value={messageId} autoComplete="off" required />
        <Field label={s.onlyPerson} value={userId} autoComplete="off" />
        <Button type="submit" look="primary">
          {s.explain}
        </Button>
      </Filters>
      {id ? (
        <Explained key={`${id} ${query}`} messageId={id} userId={query.get("user") ?? ""} />
      ) : (
        <Empty>
          <strong>{s.nothingExplained}</strong>
          <span>{s.whereIds}</span>
        </Empty>
      )}
    </Page>
  );
}

function Explained({ messageId, userId }: { messageId: string; userId: string }) {
  const feed = useOnce(
    () =>
      api("GET /v1/admin/messages/{message_id}/timeline", {
        path: { message_id: messageId },
        query: userId ? { user_id: userId } : {},
      }),
    [],
  );
  return <Shown feed={feed}>{(told) => <Told told={told} onAgain={() => void feed.reload()} />}</Shown>;
}

function Told({ told, onAgain }: { told: MessageTimeline; onAgain: () => void }) {
  useNames([told.sender_id, ...told.steps.flatMap(({ user_id }) => user_id ?? [])]);
  const isCopied = useSignal(false);
  const copy = async () => {
    await navigator.clipboard.writeText(asText(told));
    isCopied.value = true;
  };
  return (
    <>
      <Facts
        of={[
          [s.message, <Id key="message" of={told.message_id} />],
          [
            s.chat,
            <Id
              key="chat"
              of={told.chat_id}
              href={hrefOf("chat", told.chat_id, { around: told.sequence })}
            />,
          ],
          [s.position, `#${number(told.sequence)}`],
          [s.from, <Name key="from" of={nameOf(told.sender_id)} href={hrefOf("person", told.sender_id)} />],
        ]}
      />
      <Section
        title={s.steps(told.steps.length)}
        actions={
          <>
            <Button onClick={onAgain}>{s.askAgain}</Button>
            {navigator.clipboard && (
              <Button onClick={() => void copy()}>{isCopied.value ? s.copied : s.copyAsText}</Button>
            )}
          </>
        }
      >
        <ol class={c.timeline} aria-label={s.timeline}>
          {told.steps.map((step, at) => (
            <Step key={`${at} ${step.step}`} step={step} />
          ))}
        </ol>
      </Section>
    </>
  );
}

function Step({ step }: { step: TimelineStep }) {
  const at = Date.parse(step.at);
  const look = step.step in LOOKS ? LOOKS[step.step as keyof typeof LOOKS] : "accent";
  return (
    <li data-step={step.step} class={c[look]}>
      <time dateTime={step.at} title={wholeTime(at)} class={c.time}>
        {clockTimeSeconds(at)}
        <span class={quiet}>.{String(at % MS_PER_SECOND).padStart(3, "0")}</span>
      </time>
      <div class={c.what}>
        <div class={row}>
          <Tag look={look}>{s.stepNames[step.step]}</Tag>
          {step.user_id && <Name of={nameOf(step.user_id)} href={hrefOf("person", step.user_id)} />}
          {step.device_id && (
            <span class={quiet}>
              <Name of={step.device_id} />
            </span>
          )}
        </div>
        {(step.detail || step.node) && (
          <span class={quiet}>
            <Name of={[step.detail, step.node && s.onNode(step.node)].filter(Boolean).join(" · ")} />
          </span>
        )}
      </div>
    </li>
  );
}

const MS_PER_SECOND = 1_000;

/** For a ticket: one line a step. */
function asText(told: MessageTimeline): string {
  const head = `${told.message_id} ${told.chat_id} #${told.sequence} ${told.sender_id}`;
  const lines = told.steps.map(({ at, step, user_id, device_id, node, detail }) =>
    [at, step, user_id, device_id, node, detail].filter(Boolean).join("  "),
  );
  return [head, ...lines].join("\n");
}
