/** The files of a chat, newest first: the log is read backwards, as far as the person wants. */

import { useSignal } from "@preact/signals";
import type { AttachedFile, Entry } from "parley-chat";
import { Alert, Button, IconButton } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog } from "parley-ui/Dialog.js";
import { Icon } from "parley-ui/Icon.js";
import { reasonOf } from "parley-ui/pageSession.js";
import { listTime } from "parley-ui/time.js";
import { useEffect } from "preact/hooks";
import type { Conversation } from "../app/conversation.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import { sizeOf } from "./Attachments.js";
import c from "./ChatFiles.module.css";

/** One look reads so many pages, or until it has found so many files. */
const PAGES_AT_ONCE = 5;
const PAGE_ENTRIES = 200;
const FILES_AT_ONCE = 20;

interface Found {
  readonly file: AttachedFile;
  readonly entry: Entry;
}

type FilesProps = { conversation: Conversation; onClose: () => void; onJump: (sequence: number) => void };

export default function ChatFiles({ conversation, onClose, onJump }: FilesProps) {
  const { people } = useApp();
  const all = useSignal<readonly Found[]>([]);
  /** Everything from here on was looked at. */
  const from = useSignal<number | null>(null);
  const isBusy = useSignal(false);
  const reason = useSignal("");
  const look = async () => {
    if (isBusy.value) return;
    isBusy.value = true;
    reason.value = "";
    try {
      const wanted = all.value.length + FILES_AT_ONCE;
      for (
        let pages = 0;
        pages < PAGES_AT_ONCE && all.value.length < wanted && from.value !== 1;
        pages += 1
      ) {
        const before = from.value === null ? {} : { before: from.value };
        const page = await conversation.chat.history({ ...before, limit: PAGE_ENTRIES });
        const found = page.entries.flatMap((entry) =>
          entry.deleted ? [] : (entry.attachments ?? []).map((file) => ({ file, entry })),
        );
        all.value = [...all.value, ...found.reverse()];
        from.value = Math.max(1, page.from_sequence);
      }
    } catch (error) {
      reason.value = reasonOf(error);
    }
    isBusy.value = false;
  };
  useEffect(() => void look(), []);
  const isWhole = from.value === 1;
  return (
    <Dialog title={s.filesOfChat} onClose={onClose}>
      {reason.value && <Alert>{reason.value}</Alert>}
      <ul class={c.list} aria-label={s.files}>
        {all.value.map(({ file, entry }) => (
          <li key={file.attachment_id} class={c.item}>
            <span class={c.icon}>
              <Icon name={file.width ? "image" : "file"} size={22} />
            </span>
            <span class={c.text}>
              <bdi class={c.name}>{file.name}</bdi>
              <span class={controls.hint}>
                {sizeOf(file.size)} · <bdi>{plainName(people.name(entry.sender_id))}</bdi>,{" "}
                {listTime(Date.parse(entry.created_at))}
              </span>
            </span>
            <IconButton icon="eye" name={s.showInChat(file.name)} onClick={() => onJump(entry.sequence)} />
            <IconButton
              icon="download"
              name={s.download(file.name)}
              onClick={() => void conversation.download(file).catch(() => conversation.say(s.downloadFailed))}
            />
          </li>
        ))}
      </ul>
      <p role="status" class={controls.hint}>
        {isBusy.value ? s.loading : isWhole && all.value.length === 0 ? s.noFiles : ""}
        {!isBusy.value && !isWhole && from.value !== null && s.lookedBack(from.value)}
      </p>
      {!isWhole && !isBusy.value && <Button onClick={() => void look()}>{s.lookFurther}</Button>}
    </Dialog>
  );
}
