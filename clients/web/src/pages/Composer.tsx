/** Where a message is written: text, files, an answer to another one, or a correction. */

import { type Signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { OutboxFull } from "parley-chat";
import { Alert, IconButton } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Icon } from "parley-ui/Icon.js";
import { kept } from "parley-ui/kept.js";
import { useLater } from "parley-ui/later.js";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Conversation } from "../app/conversation.js";
import { useApp } from "../app/state.js";
import { lineOf } from "../app/summary.js";
import { Uploads } from "../app/uploads.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import c from "./Composer.module.css";
import { loadEmoji } from "./dialogs.js";
import { completed, type MentionState, Mentions, mentionAt, mentionsIn } from "./Mentions.js";
import { UploadList } from "./UploadList.js";

const DRAFT_MS = 300;
const ROWS_PIXELS_MAX = 200;
const QUOTE_CHARS = 120;
const SECOND_MS = 1_000;

export function Composer({ conversation }: { conversation: Conversation }) {
  const { chat, writing, info } = conversation;
  const text = useSignal("");
  const reason = useSignal("");
  const isChoosing = useSignal(false);
  const mention = useSignal<MentionState | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const uploads = useMemo(() => new Uploads(chat), [chat]);
  const wait = useSlowMode(conversation);
  const EmojiDialog = useLater(isChoosing.value ? loadEmoji : null);
  const { editing, replyTo } = writing.value;
  const draft = useDraft(conversation, text);

  useEffect(() => () => uploads.stop(), [uploads]);
  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, ROWS_PIXELS_MAX)}px`;
  }, [text.value]);
  useSignalEffect(() => {
    const { editing: target, replyTo: answered } = writing.value;
    if (target) {
      const found = conversation.window.peek()?.messages.find(({ entry }) => entry.message_id === target);
      text.value = found?.entry.content ?? "";
    }
    if (target || answered) field.current?.focus();
  });
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches && document.activeElement === document.body)
      field.current?.focus();
  }, []);

  if (info.value?.announcement_only && info.value.role === "member") {
    return <p class={c.closed}>{s.onlyAdmins}</p>;
  }

  const put = (inserted: string) => {
    const element = field.current;
    const at = element?.selectionStart ?? text.value.length;
    text.value = text.value.slice(0, at) + inserted + text.value.slice(element?.selectionEnd ?? at);
    requestAnimationFrame(() => {
      element?.focus();
      element?.setSelectionRange(at + inserted.length, at + inserted.length);
    });
  };

  const stopWriting = () => {
    if (writing.value.editing) text.value = "";
    writing.value = { replyTo: null, editing: null };
  };

  const send = () => {
    const content = text.value.trim();
    const hasFiles = uploads.all.value.some(({ state }) => state === "done");
    if ((!content && !hasFiles) || uploads.isBusy || wait.value > 0) return;
    reason.value = "";
    try {
      if (editing) {
        chat.edit(editing, content);
      } else {
        const attachments = uploads.take();
        const mentions = mentionsIn(content, chat);
        chat.send(content, {
          ...(replyTo && { replyTo }),
          ...(mentions.length > 0 && { mentions }),
          ...(attachments.length > 0 && { attachments }),
        });
        if (!conversation.isAtEnd.value) void conversation.jumpToLatest();
        else conversation.want(Number.POSITIVE_INFINITY);
        wait.start();
      }
    } catch (error) {
      reason.value = error instanceof OutboxFull ? s.queueFull : s.tooLong;
      return;
    }
    text.value = "";
    writing.value = { replyTo: null, editing: null };
    draft.clear();
    field.current?.focus();
  };

  const keys = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (mention.value && Mentions.key(event, mention, (name) => complete(name))) return;
    const wantsLine = (kept("enter") === "line") !== event.shiftKey;
    if (event.key === "Enter" && !wantsLine && !event.ctrlKey && !event.altKey) {
      event.preventDefault();
      send();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && (editing || replyTo)) {
      event.preventDefault();
      event.stopPropagation();
      stopWriting();
    } else if (event.key === "ArrowUp" && !text.value && !editing) {
      const last = conversation.rows.value.findLast(
        (row) => row.type === "message" && row.isOwn && !row.sending && !row.entry.deleted,
      );
      if (!last) return;
      event.preventDefault();
      writing.value = { replyTo: null, editing: last.entry.message_id };
    } else if (event.key === "u" && event.ctrlKey) {
      event.preventDefault();
      picker.current?.click();
    }
  };

  const complete = (username: string) => {
    const now = mention.value;
    if (!now) return;
    const [next, at] = completed(text.value, now, username);
    text.value = next;
    mention.value = null;
    requestAnimationFrame(() => field.current?.setSelectionRange(at, at));
  };

  const isEmpty = !text.value.trim() && uploads.all.value.length === 0;
  return (
    <form
      class={c.composer}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        uploads.add(event.dataTransfer?.files ?? []);
      }}
    >
      {reason.value && <Alert>{reason.value}</Alert>}
      <Bar conversation={conversation} onCancel={stopWriting} />
      <UploadList uploads={uploads} />
      {mention.value && <Mentions state={mention} chat={chat} onChoose={complete} />}
      <div class={c.line}>
        <IconButton
          icon="attach"
          name={s.attach}
          disabled={editing !== null}
          onClick={() => picker.current?.click()}
        />
        <input
          ref={picker}
          type="file"
          multiple
          class="sr"
          tabIndex={-1}
          aria-hidden="true"
          onChange={(event) => {
            uploads.add(event.currentTarget.files ?? []);
            event.currentTarget.value = "";
          }}
        />
        <textarea
          ref={field}
          id="composer"
          class={c.field}
          rows={1}
          dir="auto"
          aria-label={s.message}
          aria-autocomplete="list"
          aria-controls={mention.value ? "mention-list" : undefined}
          placeholder={s.message}
          value={text.value}
          onInput={(event) => {
            const element = event.currentTarget;
            text.value = element.value;
            mention.value = mentionAt(element.value, element.selectionStart);
            if (element.value) chat.type();
            else chat.stopTyping();
            if (!editing) draft.save();
          }}
          onKeyDown={keys}
          onBlur={() => chat.stopTyping()}
          onPaste={(event) => {
            const files = event.clipboardData?.files;
            if (!files?.length) return;
            event.preventDefault();
            uploads.add(files);
          }}
        />
        <IconButton
          icon="emoji"
          name={s.emoji}
          onClick={() => {
            isChoosing.value = true;
          }}
        />
        <button
          type="submit"
          class={c.send}
          aria-label={s.send}
          title={s.send}
          disabled={isEmpty || uploads.isBusy || wait.value > 0}
        >
          <Icon name={editing ? "tick" : "send"} />
        </button>
      </div>
      {wait.value > 0 && (
        <div role="status" aria-label={s.slowModeStatus} class={c.slow}>
          {s.slowMode(wait.value)}
        </div>
      )}
      {EmojiDialog && (
        <EmojiDialog
          onClose={() => {
            isChoosing.value = false;
          }}
          onChoose={(emoji) => {
            isChoosing.value = false;
            put(emoji);
          }}
        />
      )}
    </form>
  );
}

/** What is answered, or corrected. */
function Bar({ conversation, onCancel }: { conversation: Conversation; onCancel: () => void }) {
  const { people } = useApp();
  const { editing, replyTo } = conversation.writing.value;
  const target = editing ?? replyTo;
  if (!target) return null;
  const found = conversation.quoted(target).value;
  const name = found ? plainName(people.name(found.sender_id)) : s.original;
  return (
    <fieldset class={c.bar} aria-label={editing ? s.editing : s.replyTo(name)}>
      <Icon name={editing ? "edit" : "reply"} size={18} />
      <span class={c.barText}>
        <strong>{editing ? s.editing : s.replyTo(name)}</strong>
        <span dir="auto">{found ? lineOf(found, people).slice(0, QUOTE_CHARS) : "…"}</span>
      </span>
      <button type="button" class={controls.icon} aria-label={s.cancel} title={s.cancel} onClick={onCancel}>
        <Icon name="close" size={18} />
      </button>
    </fieldset>
  );
}

/** What is written is kept, in every tab, until it is sent. */
function useDraft(conversation: Conversation, text: Signal<string>): { save(): void; clear(): void } {
  const { chat, writing, app } = conversation;
  return useMemo(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let own = "";
    const load = async () => {
      const draft = await chat.draft().catch(() => undefined);
      if (writing.peek().editing || timer !== undefined) return;
      if ((draft?.text ?? "") === own && text.peek()) return;
      if (draft || own) text.value = draft?.text ?? "";
      own = draft?.text ?? "";
      if (draft?.replyTo) writing.value = { replyTo: draft.replyTo, editing: null };
    };
    void load();
    const off = app.client.on("drafts", ({ chatId }) => {
      if (chatId === chat.chatId && document.visibilityState === "hidden") void load();
    });
    conversation.onClose(off);
    const write = () => {
      timer = undefined;
      const { replyTo } = writing.peek();
      own = text.peek();
      const draft = own ? { text: own, ...(replyTo && { replyTo }) } : null;
      void chat.saveDraft(draft).catch(() => {});
    };
    conversation.onClose(() => {
      if (timer === undefined) return;
      clearTimeout(timer);
      write();
    });
    return {
      save: () => {
        clearTimeout(timer);
        timer = setTimeout(write, DRAFT_MS);
      },
      clear: () => {
        clearTimeout(timer);
        timer = undefined;
        own = "";
        void chat.saveDraft(null).catch(() => {});
      },
    };
  }, [conversation]);
}

/** The seconds until the person may send again, where the chat makes them wait. */
function useSlowMode(conversation: Conversation): { readonly value: number; start(): void } {
  const until = useSignal(0);
  const now = useSignal(Date.now());
  useEffect(() => {
    if (until.value <= Date.now()) return undefined;
    const timer = setInterval(() => {
      now.value = Date.now();
    }, SECOND_MS / 2);
    return () => clearInterval(timer);
  }, [until.value, now.value >= until.value]);
  const left = useComputed(() => Math.max(0, Math.ceil((until.value - now.value) / SECOND_MS)));
  return {
    value: left.value,
    start: () => {
      const { slow_mode_seconds: seconds = 0, role } = conversation.info.value ?? {};
      now.value = Date.now();
      if (seconds > 0 && role === "member") until.value = Date.now() + seconds * SECOND_MS;
    },
  };
}
