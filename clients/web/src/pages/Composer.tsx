/** Where a message is written: text, files, an answer to another one, or a correction. */

import { type Signal, useSignal, useSignalEffect } from "@preact/signals";
import { OutboxFull } from "parley-chat";
import { Alert, IconButton } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Icon } from "parley-ui/Icon.js";
import { kept } from "parley-ui/kept.js";
import { useLater } from "parley-ui/later.js";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Conversation } from "../app/conversation.js";
import { useApp } from "../app/state.js";
import { type Suggestion, Suggestions } from "../app/suggest.js";
import { lineOf } from "../app/summary.js";
import { type Uploads, uploadsOf } from "../app/uploads.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import c from "./Composer.module.css";
import { loadEmoji } from "./dialogs.js";

const DRAFT_MS = 300;
const ROWS_PIXELS_MAX = 200;
const QUOTE_CHARS = 120;
const SECOND_MS = 1_000;

const loadSuggestions = () => import("./SuggestionList.js");
const loadUploads = () => import("./UploadList.js");

/** The field, or why there is none. */
export function Composer({ conversation }: { conversation: Conversation }) {
  const { people } = useApp();
  const info = conversation.info.value;
  const peerId = conversation.peerId.value;
  if (info?.announcement_only && info.role === "member") return <p class={c.closed}>{s.onlyAdmins}</p>;
  if (conversation.isPeerGone.value) return <p class={c.closed}>{s.peerGone}</p>;
  if (peerId && people.blocked.value.has(peerId)) {
    return <p class={c.closed}>{s.youBlocked(plainName(people.name(peerId)))}</p>;
  }
  return <Writing conversation={conversation} />;
}

function Writing({ conversation }: { conversation: Conversation }) {
  const { chat, writing } = conversation;
  const text = useSignal("");
  const reason = useSignal("");
  const isChoosing = useSignal(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const uploads = uploadsOf(chat);
  const suggestions = useMemo(() => new Suggestions(), [chat]);
  const wait = useSlowMode(conversation);
  const EmojiDialog = useLater(isChoosing.value ? loadEmoji : null);
  const { editing, replyTo } = writing.value;
  const draft = useDraft(conversation, text, uploads);
  const SuggestionList = useLater(suggestions.asked.value ? loadSuggestions : null);
  const UploadList = useLater(uploads.all.value.length > 0 ? loadUploads : null);

  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, ROWS_PIXELS_MAX)}px`;
  }, [text.value]);
  useSignalEffect(() => {
    const { editing: target, replyTo: answered, text: again } = writing.value;
    if (target) {
      const found = conversation.window.peek()?.messages.find(({ entry }) => entry.message_id === target);
      text.value = found?.entry.content ?? "";
    }
    if (again !== undefined) {
      text.value = [again, text.peek()].filter(Boolean).join("\n");
      draft.save();
    }
    if (target || answered || again !== undefined) field.current?.focus();
  });
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches && document.activeElement === document.body)
      field.current?.focus();
  }, []);

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
    if ((!content && !hasFiles) || uploads.isBusy || wait > 0) return;
    reason.value = "";
    try {
      if (editing) {
        chat.edit(editing, content);
      } else {
        const attachments = uploads.take();
        const mentions = suggestions.mentionsIn(content, chat);
        chat.send(content, {
          ...(replyTo && { replyTo }),
          ...(mentions.length > 0 && { mentions }),
          ...(attachments.length > 0 && { attachments }),
        });
        if (!conversation.isAtEnd.value) void conversation.jumpToLatest();
        else conversation.want(Number.POSITIVE_INFINITY);
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
    if (suggestions.key(event, complete)) return;
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

  const complete = (suggestion: Suggestion) => {
    const [next, at] = suggestions.take(text.value, suggestion);
    text.value = next;
    draft.save();
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
      {UploadList && <UploadList uploads={uploads} />}
      {SuggestionList && (
        <SuggestionList suggestions={suggestions} conversation={conversation} onChoose={complete} />
      )}
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
          aria-controls={suggestions.all.value.length > 0 ? "suggestions" : undefined}
          aria-activedescendant={
            suggestions.all.value.length > 0 ? `suggestion-${suggestions.chosen.value}` : undefined
          }
          placeholder={s.message}
          value={text.value}
          onInput={(event) => {
            const element = event.currentTarget;
            text.value = element.value;
            suggestions.look(element.value, element.selectionStart);
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
          disabled={isEmpty || uploads.isBusy || wait > 0}
        >
          <Icon name={editing ? "tick" : "send"} />
        </button>
      </div>
      {wait > 0 && (
        <div role="status" aria-label={s.slowModeStatus} class={c.slow}>
          {s.slowMode(wait)}
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

/** What is written is kept, in every tab, until it is sent; and which files go with it. */
function useDraft(
  { chat, writing, app, onClose }: Conversation,
  text: Signal<string>,
  uploads: Uploads,
): { save(): void; clear(): void } {
  return useMemo(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let own = "";
    const load = async () => {
      const draft = await chat.draft().catch(() => undefined);
      if (draft?.files) void uploads.restore(draft.files);
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
    onClose(off);
    const write = () => {
      timer = undefined;
      const { replyTo, editing } = writing.peek();
      if (!editing) own = text.peek();
      const files = uploads.kept;
      const isNothing = !own && files.length === 0;
      const draft = { text: own, ...(replyTo && { replyTo }), ...(files.length > 0 && { files }) };
      void chat.saveDraft(isNothing ? null : draft).catch(() => {});
    };
    uploads.onKept = write;
    onClose(() => {
      if (uploads.onKept === write) uploads.onKept = null;
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
  }, [chat]);
}

/** The seconds until the person may send again, where the chat makes them wait. */
function useSlowMode(conversation: Conversation): number {
  const now = useSignal(Date.now());
  const until = conversation.slowUntil.value;
  const left = Math.max(0, Math.ceil((until - now.value) / SECOND_MS));
  useEffect(() => {
    if (until <= Date.now()) return undefined;
    now.value = Date.now();
    const timer = setInterval(() => {
      now.value = Date.now();
      if (until <= Date.now()) clearInterval(timer);
    }, SECOND_MS / 2);
    return () => clearInterval(timer);
  }, [until]);
  return left;
}
