/** What can be done to a message. */

import { signal } from "@preact/signals";
import type { Entry, Sending } from "parley-chat";
import type { MenuItem } from "parley-ui/Menu.js";
import type { Conversation } from "../app/conversation.js";
import { hrefOf } from "../app/route.js";
import { s } from "../strings.en.js";
import type { Shown } from "./dialogs.js";

/** What a message can be asked for: by its toolbar, its menu, or a key. */
export class Actions {
  readonly conversation: Conversation;
  readonly show: (shown: Shown) => void;
  /** The key of the row that has the toolbar: the one that was last pointed at, or got the focus. */
  readonly near = signal<string | null>(null);

  constructor(conversation: Conversation, show: (shown: Shown) => void) {
    this.conversation = conversation;
    this.show = show;
  }

  isOwn(entry: Entry): boolean {
    return entry.sender_id === this.conversation.app.person.userId;
  }

  mayEdit(entry: Entry): boolean {
    if (!this.isOwn(entry) || entry.deleted || !entry.message_id || entry.attachments?.length) return false;
    const seconds = this.conversation.info.value?.edit_window_seconds ?? 0;
    return seconds === 0 || Date.now() - Date.parse(entry.created_at) < seconds * 1000;
  }

  mayDelete(entry: Entry): boolean {
    if (entry.deleted || !entry.message_id) return false;
    const { role, type } = this.conversation.info.value ?? {};
    return this.isOwn(entry) || (type === "group" && (role === "owner" || role === "admin"));
  }

  reply(entry: Entry): void {
    if (entry.message_id && !entry.deleted)
      this.conversation.writing.value = { replyTo: entry.message_id, editing: null };
  }

  edit(entry: Entry): void {
    if (this.mayEdit(entry)) this.conversation.writing.value = { replyTo: null, editing: entry.message_id };
  }

  askDelete(entry: Entry): void {
    if (this.mayDelete(entry)) this.show({ dialog: "delete", entry });
  }

  info(entry: Entry): void {
    if (entry.message_id) this.show({ dialog: "info", entry });
  }

  react(entry: Entry): void {
    if (entry.message_id && !entry.deleted) this.show({ dialog: "react", entry });
  }

  toggle(entry: Entry, reaction: string, isOn: boolean): void {
    this.conversation.chat.react(entry.message_id, reaction, { on: isOn });
  }

  async copyText(entry: Entry): Promise<void> {
    await copy(entry.content);
    this.conversation.say(s.copied);
  }

  async copyLink(entry: Entry): Promise<void> {
    await copy(`${location.origin}/${hrefOf.chat(entry.chat_id, entry.sequence)}`);
    this.conversation.say(s.linkCopied);
  }

  async tryAgain(sending: Sending): Promise<void> {
    await sending.retry();
  }

  async discard(sending: Sending): Promise<void> {
    await sending.discard();
  }

  items(entry: Entry): MenuItem[] {
    const isThere = !entry.deleted;
    const items: (MenuItem | false)[] = [
      isThere && { name: s.react, icon: "emoji", do: () => this.react(entry) },
      isThere && { name: s.reply, icon: "reply", do: () => this.reply(entry) },
      this.mayEdit(entry) && { name: s.edit, icon: "edit", do: () => this.edit(entry) },
      isThere && { name: s.copyText, icon: "copy", do: () => void this.copyText(entry) },
      { name: s.copyLink, icon: "link", do: () => void this.copyLink(entry) },
      { name: s.messageInfo, icon: "info", do: () => this.info(entry) },
      isThere &&
        !this.isOwn(entry) && {
          name: s.report,
          icon: "flag",
          do: () => this.show({ dialog: "report", entry }),
        },
      this.mayDelete(entry) && {
        name: s.delete,
        icon: "trash",
        isDanger: true,
        do: () => this.askDelete(entry),
      },
    ];
    return items.filter((item) => item !== false);
  }
}

/** Pages on plain http have no clipboard: there the old way. */
export async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  return undefined;
}
