/** The story of one message: what happened to it, step by step. */

import { useSignal } from "@preact/signals";
import type { Entry, JournalStep, Receipts } from "parley-chat";
import { Button } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog } from "parley-ui/Dialog.js";
import { Icon, type IconName } from "parley-ui/Icon.js";
import { wholeTime } from "parley-ui/time.js";
import { useEffect } from "preact/hooks";
import type { Conversation } from "../app/conversation.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import { Completeness } from "./Completeness.js";
import c from "./MessageInfo.module.css";

interface Line {
  readonly icon: IconName;
  readonly text: string;
  readonly at: number;
}

/** Who has received a message of a larger chat is a long list. */
const MEMBERS_MAX = 100;

type InfoProps = { entry: Entry; conversation: Conversation; onClose: () => void };

export default function MessageInfo({ entry, conversation, onClose }: InfoProps) {
  const { people, live, client, person } = useApp();
  const steps = useSignal<readonly JournalStep[]>([]);
  const receipts = useSignal<Receipts | null>(null);
  const { chat } = conversation;
  live.watch("receipts", chat.chatId);
  const { member_count: count = 0, read_receipts: mode } = conversation.info.value ?? {};
  const isLarge = count > MEMBERS_MAX;
  const loadReceipts = () =>
    chat.receipts(entry.sequence).then(
      (found) => {
        receipts.value = found;
      },
      () => {},
    );
  useEffect(() => {
    if (entry.client_message_id && entry.sender_id === person.userId) {
      void client.journal(chat.chatId, entry.client_message_id).then((found) => {
        steps.value = found;
      });
    }
    // Of very many people it is asked for when the person wants to know.
    if (!isLarge) void loadReceipts();
  }, []);
  const name = (userId: string | null) => (userId ? plainName(people.name(userId)) : null);
  const lines = storyOf(entry, steps.value, name);
  const seen = chat.seen(entry) ?? seenBy(receipts.value);
  if (seen) {
    const of = seen.memberCount;
    const read = new Set(seen.read.map((one) => one.userId));
    for (const one of seen.delivered) {
      const who = name(one.userId);
      if (who && !read.has(one.userId))
        lines.push({ icon: "ticks", text: s.storyDeliveredTo(who), at: Date.parse(one.at) });
    }
    for (const one of seen.read) {
      const who = name(one.userId);
      lines.push({ icon: "eye", text: who ? s.storyReadBy(who) : s.storyReadBySome, at: Date.parse(one.at) });
    }
    if (of > 1) {
      const counts = [s.storyDelivered(seen.delivered.length, of)];
      if (mode === "full") counts.push(s.storyRead(seen.read.length, of));
      lines.push({ icon: "people", text: counts.join(" · "), at: 0 });
    }
  }
  return (
    <Dialog title={s.messageInfo} onClose={onClose}>
      <ul class={c.story} aria-label={s.story}>
        {lines.map((line) => (
          <li key={`${line.text} ${line.at}`} class={c.line}>
            <Icon name={line.icon} size={18} />
            <span>{line.text}</span>
            {line.at > 0 && <time dateTime={new Date(line.at).toISOString()}>{wholeTime(line.at)}</time>}
          </li>
        ))}
      </ul>
      {mode === "none" && <p class={controls.hint}>{s.storyNoReceipts}</p>}
      {mode === "simple" && <p class={controls.hint}>{s.storySimple}</p>}
      {isLarge && mode !== "none" && !receipts.value && (
        <>
          <p class={controls.hint}>{s.receiptsOfMany(count)}</p>
          <Button onClick={() => void loadReceipts()}>{s.showReceipts}</Button>
        </>
      )}
      <Completeness chat={chat} />
    </Dialog>
  );
}

function seenBy(receipts: Receipts | null) {
  if (!receipts) return undefined;
  const of = (all: Receipts["read"]) =>
    all.map(({ user_id: userId, at }) => ({ userId: userId ?? null, at }));
  return { memberCount: receipts.member_count, delivered: of(receipts.delivered), read: of(receipts.read) };
}

function storyOf(
  entry: Entry,
  steps: readonly JournalStep[],
  name: (userId: string) => string | null,
): Line[] {
  const lines: Line[] = steps.map((step) => lineOf(step));
  if (lines.length === 0) {
    const at = Date.parse(entry.display_time ?? entry.created_at);
    lines.push({ icon: "edit", text: s.storyWrittenBy(name(entry.sender_id) ?? s.unknownPerson), at });
  }
  if (!steps.some((step) => step.step === "stored")) {
    lines.push({ icon: "tick", text: s.storyStored(entry.sequence), at: Date.parse(entry.created_at) });
  }
  if (entry.edited_at) lines.push({ icon: "edit", text: s.storyEdited, at: Date.parse(entry.edited_at) });
  return lines;
}

function lineOf(step: JournalStep): Line {
  const { at } = step;
  switch (step.step) {
    case "written":
      return { icon: "edit", text: s.storyWritten, at };
    case "kept":
      return { icon: "shield", text: s.storyKept, at };
    case "sent":
      return { icon: "send", text: s.storySent(step.attempt), at };
    case "queued":
      return { icon: "clock", text: s.storyQueued, at };
    case "refused":
      return { icon: "warning", text: s.storyRefused(step.refusal.reason), at };
    case "stored":
      return { icon: "tick", text: s.storyStored(step.ack.sequence), at };
  }
}
