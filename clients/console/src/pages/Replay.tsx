/** Look first, then replay or discard exactly what was seen; and how far the replays are. */

import { signal, useSignal } from "@preact/signals";
import type { DeadLetterPreview, PreviewOrder } from "parley-chat";
import { Alert, Button } from "parley-ui/controls.js";
import { clockTimeSeconds, wholeTime } from "parley-ui/time.js";
import { useEffect } from "preact/hooks";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { told } from "../app/words.js";
import { Danger } from "../parts/Danger.js";
import { Act, quiet } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { s } from "../strings.en.js";
import c from "./DeadLetters.module.css";

type Action = "replay" | "discard";

const KEPT = "parley.console.replays";
/** Replays of this tab, or that were found under way: they go on when nobody looks. */
const jobs = signal<readonly string[]>(remembered());

type OrdersProps = {
  chosen: () => PreviewOrder;
  /** What is chosen, in words. */
  what: string;
  onDone: () => void;
};

export function Orders({ chosen, what, onDone }: OrdersProps) {
  const preview = useSignal<{ readonly action: Action; readonly seen: DeadLetterPreview } | null>(null);
  const said = useSignal("");
  const failure = useSignal("");
  const known = useFeed(() => api("GET /v1/admin/dlq/jobs"), []).value.value?.jobs ?? [];
  const underWay = known.filter(({ action, waiting }) => action === "replay" && waiting > 0);
  const key = underWay.map(({ job_id }) => job_id).join();
  useEffect(() => {
    for (const { job_id } of underWay) remember(job_id);
  }, [key]);
  const look = async (action: Action) => {
    said.value = "";
    failure.value = "";
    try {
      const found = await api("POST /v1/admin/dlq/preview", { body: chosen() });
      if (found.matched === 0) said.value = s.noneMatch;
      else preview.value = { action, seen: found };
    } catch (error) {
      failure.value = told(error);
    }
  };
  const order = async (action: Action, { token, matched }: DeadLetterPreview, reason: string) => {
    if (action === "replay") {
      const { job_id } = await api("POST /v1/admin/dlq/replay", { body: { token } });
      if (job_id) remember(job_id);
    } else {
      await api("POST /v1/admin/dlq/discard", { body: { token, reason } });
      said.value = s.discarded(matched);
    }
    onDone();
  };
  return (
    <>
      <div class={c.orders}>
        <span class={c.what}>{what}</span>
        <Act onClick={() => void look("replay")}>{s.previewReplay}</Act>
        <Act onClick={() => void look("discard")}>{s.previewDiscard}</Act>
        <span role="status" class={quiet}>
          {said.value}
        </span>
      </div>
      {failure.value && <Alert>{failure.value}</Alert>}
      {jobs.value.map((jobId) => (
        <Progress key={jobId} jobId={jobId} onChange={onDone} />
      ))}
      {preview.value && (
        <Order
          action={preview.value.action}
          seen={preview.value.seen}
          onDo={order}
          onClose={() => {
            preview.value = null;
          }}
        />
      )}
    </>
  );
}

type OrderProps = {
  action: Action;
  seen: DeadLetterPreview;
  onDo: (action: Action, seen: DeadLetterPreview, reason: string) => Promise<void>;
  onClose: () => void;
};

function Order({ action, seen, onDo, onClose }: OrderProps) {
  const isReplay = action === "replay";
  return (
    <Danger
      title={isReplay ? s.replayQuestion(seen.matched) : s.discardQuestion(seen.matched)}
      action={isReplay ? s.replay : s.discard}
      isHarmless={isReplay}
      needsReason={!isReplay}
      onDo={(reason) => onDo(action, seen, reason)}
      onClose={onClose}
    >
      <p>
        <strong>{s.previewed(seen.matched, seen.chats, clockTimeSeconds(Date.parse(seen.as_of)))}</strong>{" "}
        {seen.oldest && s.oldest(wholeTime(Date.parse(seen.oldest)))}
      </p>
      <p>
        {isReplay ? s.replayHint : s.discardHint} {s.nothingNewer}
      </p>
    </Danger>
  );
}

function Progress({ jobId, onChange }: { jobId: string; onChange: () => void }) {
  const feed = useFeed(() => api("GET /v1/admin/dlq/jobs/{job_id}", { path: { job_id: jobId } }), [jobId]);
  const waiting = feed.value.value?.waiting;
  useEffect(() => {
    if (waiting !== undefined) onChange();
  }, [waiting]);
  return (
    <Shown feed={feed}>
      {(job) => {
        const total = job.waiting + job.replayed + job.failed;
        return (
          <div class={c.job}>
            <strong>{s.replay}</strong>
            <progress aria-label={s.replay} max={Math.max(1, total)} value={total - job.waiting} />
            <span role="status">
              {s.replayed(job.replayed, total)}
              {job.failed > 0 && `, ${s.failedAgain(job.failed)}`}
              {job.waiting === 0 && `. ${s.replayDone}.`}
            </span>
            {job.waiting === 0 && (
              <Button look="quiet" onClick={() => forget(jobId)}>
                {s.hide}
              </Button>
            )}
          </div>
        );
      }}
    </Shown>
  );
}

const hidden = new Set<string>();

function remember(jobId: string): void {
  if (jobs.value.includes(jobId) || hidden.has(jobId)) return;
  keep([...jobs.value, jobId]);
}

function forget(jobId: string): void {
  hidden.add(jobId);
  keep(jobs.value.filter((one) => one !== jobId));
}

function keep(next: readonly string[]): void {
  jobs.value = next;
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(next));
  } catch {
    // They live as long as the page.
  }
}

function remembered(): readonly string[] {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}
