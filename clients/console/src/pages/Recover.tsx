/** A lost counter comes back: first what would be written, then the chat's id by hand. */

import { useSignal } from "@preact/signals";
import type { RecoveryReport } from "parley-chat";
import { Switch } from "parley-ui/controls.js";
import { useEffect } from "preact/hooks";
import { api } from "../app/api.js";
import { told } from "../app/words.js";
import { Danger } from "../parts/Danger.js";
import { number, s } from "../strings.en.js";
import c from "./OneChat.module.css";

const MAY_BE_WRITTEN = "missing";

export function Recover({ chatId, onClose }: { chatId: string; onClose: () => void }) {
  const seen = useSignal<RecoveryReport | null>(null);
  const failure = useSignal("");
  const sealsHoles = useSignal(false);
  const order = (isDry: boolean) =>
    api("POST /v1/admin/chats/{chat_id}/recover", {
      path: { chat_id: chatId },
      body: { dry_run: isDry, seal_holes: sealsHoles.value },
    });
  useEffect(() => {
    seen.value = null;
    failure.value = "";
    order(true).then(
      (report) => {
        seen.value = report;
      },
      (error) => {
        failure.value = told(error);
      },
    );
  }, [sealsHoles.value]);
  return (
    <Danger
      title={s.recoverQuestion}
      action={s.recover}
      typed={{ label: s.chatId, text: chatId }}
      isDisabled={seen.value?.status !== MAY_BE_WRITTEN}
      onDo={async () => {
        const done = await order(false);
        if (!done.applied) throw new Error(done.problems.join(" ") || s.recoveryStates(done.status));
      }}
      onClose={onClose}
    >
      <p>{s.recoverHint}</p>
      <div role="status" aria-label={s.dryRun} class={c.dryRun}>
        {failure.value || (seen.value ? <DryRun seen={seen.value} /> : s.looking)}
      </div>
      <Switch
        label={s.sealHoles}
        isOn={sealsHoles.value}
        onChange={(isOn) => {
          sealsHoles.value = isOn;
        }}
      />
    </Danger>
  );
}

function DryRun({ seen }: { seen: RecoveryReport }) {
  const found = Object.entries(seen.found).filter(([name]) => name !== "sequence_counter");
  return (
    <>
      <strong>{s.recoveryStates(seen.status)}</strong>
      {seen.counter !== null && (
        <code class={c.change}>
          {s.counter}: {countOf(seen.found.sequence_counter)} → #{number(seen.counter)}
        </code>
      )}
      {seen.voids.length > 0 && (
        <code class={c.change}>
          {s.voids}:{" "}
          {seen.voids
            .map(({ first, last }) =>
              first === last ? `#${number(first)}` : `#${number(first)}–${number(last)}`,
            )
            .join(", ")}
        </code>
      )}
      {found.length > 0 && (
        <span>{s.foundHighest(found.map(([name, count]) => `${name} ${countOf(count)}`).join(", "))}</span>
      )}
      {seen.problems.map((problem) => (
        <span key={problem}>{problem}</span>
      ))}
    </>
  );
}

const countOf = (count: number | null | undefined) =>
  count === null || count === undefined ? s.lost : `#${number(count)}`;
