/** The dialogs of a conversation; one at a time. */

import type { Signal } from "@preact/signals";
import type { AttachedFile, Entry } from "parley-chat";
import { useLater } from "parley-ui/later.js";
import type { Conversation } from "../app/conversation.js";

export type Shown = { readonly entry: Entry } & (
  | { readonly dialog: "delete" | "report" | "info" | "react" }
  | { readonly dialog: "image"; readonly file: AttachedFile }
);

type DialogOfProps = { shown: Signal<Shown | null>; conversation: Conversation };

export function DialogOf({ shown, conversation }: DialogOfProps) {
  const now = shown.value;
  const MessageInfo = useLater(now?.dialog === "info" ? loadInfo : null);
  const Viewer = useLater(now?.dialog === "image" ? loadViewer : null);
  const Questions = useLater(now?.dialog === "delete" || now?.dialog === "report" ? loadQuestions : null);
  const EmojiDialog = useLater(now?.dialog === "react" ? loadEmoji : null);
  const close = () => {
    // The browser tells of a closed dialog a moment later: another one may be there by then.
    if (shown.value === now) shown.value = null;
  };
  if (!now) return null;
  const { entry } = now;
  switch (now.dialog) {
    case "delete":
    case "report":
      return (
        Questions && (
          <Questions dialog={now.dialog} entry={entry} conversation={conversation} onClose={close} />
        )
      );
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

const loadQuestions = () => import("./Questions.js");
const loadInfo = () => import("./MessageInfo.js");
const loadViewer = () => import("./Viewer.js");
export const loadEmoji = () => import("./EmojiDialog.js");
