/** The dialogs of a conversation; one at a time. */

import { type Signal, useSignal } from "@preact/signals";
import type { AttachedFile, Entry } from "parley-chat";
import { Alert, Button, Field } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog, Question } from "parley-ui/Dialog.js";
import { useLater } from "parley-ui/later.js";
import { reasonOf } from "parley-ui/pageSession.js";
import type { Conversation } from "../app/conversation.js";
import { s } from "../strings.en.js";

export type Shown = { readonly entry: Entry } & (
  | { readonly dialog: "delete" | "report" | "info" | "react" }
  | { readonly dialog: "image"; readonly file: AttachedFile }
);

type DialogOfProps = { shown: Signal<Shown | null>; conversation: Conversation };

export function DialogOf({ shown, conversation }: DialogOfProps) {
  const now = shown.value;
  const MessageInfo = useLater(now?.dialog === "info" ? loadInfo : null);
  const Viewer = useLater(now?.dialog === "image" ? loadViewer : null);
  const EmojiDialog = useLater(now?.dialog === "react" ? loadEmoji : null);
  const close = () => {
    shown.value = null;
  };
  if (!now) return null;
  const { entry } = now;
  switch (now.dialog) {
    case "delete":
      return (
        <Question
          title={s.deleteQuestion}
          hint={s.deleteHint}
          action={s.delete}
          onClose={close}
          onDo={() => {
            conversation.chat.delete(entry.message_id);
            close();
          }}
        />
      );
    case "report":
      return <ReportQuestion entry={entry} conversation={conversation} onClose={close} />;
    case "info":
      return MessageInfo && <MessageInfo entry={entry} conversation={conversation} onClose={close} />;
    case "image":
      return Viewer && <Viewer file={now.file} conversation={conversation} onClose={close} />;
    case "react":
      return (
        EmojiDialog && (
          <EmojiDialog
            onClose={close}
            onChoose={(emoji) => {
              conversation.chat.react(entry.message_id, emoji);
              close();
            }}
          />
        )
      );
  }
}

const loadInfo = () => import("./MessageInfo.js");
const loadViewer = () => import("./Viewer.js");
export const loadEmoji = () => import("./EmojiDialog.js");

type ReportProps = { entry: Entry; conversation: Conversation; onClose: () => void };

function ReportQuestion({ entry, conversation, onClose }: ReportProps) {
  const reason = useSignal("");
  const trouble = useSignal("");
  const send = async (event: Event) => {
    event.preventDefault();
    try {
      await conversation.chat.report(entry.message_id, reason.value.trim());
      conversation.say(s.reported);
      onClose();
    } catch (error) {
      trouble.value = reasonOf(error);
    }
  };
  return (
    <Dialog title={s.reportQuestion} onClose={onClose}>
      <form onSubmit={send}>
        <p>{s.reportHint}</p>
        {trouble.value && <Alert>{trouble.value}</Alert>}
        <Field label={s.reason} value={reason} required autoFocus maxLength={1000} />
        <div class={controls.buttons}>
          <Button onClick={onClose}>{s.cancel}</Button>
          <Button type="submit" look="danger">
            {s.report}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
