/** What is asked before a message is deleted, or reported. */

import { useSignal } from "@preact/signals";
import type { Entry } from "parley-chat";
import { Alert, Button, Field } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog, Question } from "parley-ui/Dialog.js";
import { reasonOf } from "parley-ui/pageSession.js";
import type { Conversation } from "../app/conversation.js";
import { s } from "../strings.en.js";

type QuestionsProps = ReportProps & { dialog: "delete" | "report" };

export default function Questions({ dialog, ...props }: QuestionsProps) {
  const { entry, conversation, onClose } = props;
  if (dialog === "report") return <ReportQuestion {...props} />;
  return (
    <Question
      title={s.deleteQuestion}
      hint={s.deleteHint}
      action={s.delete}
      onClose={onClose}
      onDo={() => {
        conversation.chat.delete(entry.message_id);
        onClose();
      }}
    />
  );
}

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
