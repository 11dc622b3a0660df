/** An entry in one line: for the list of chats, and between messages. */

import type { Entry } from "parley-chat";
import { s } from "../strings.en.js";
import type { People } from "./people.js";

interface Change {
  readonly action?: string;
  readonly user_id?: string;
  readonly role?: string;
  readonly title?: string;
}

/** What an entry of the chat itself says: somebody joined, the title changed. */
export function eventText(entry: Entry, people: Pick<People, "name">): string {
  const change = parsed(entry.content);
  const by = people.name(entry.sender_id);
  const about = change.user_id ?? entry.sender_id;
  const name = people.name(about);
  const isOwn = about === entry.sender_id;
  if (entry.kind === "chat") return change.title ? s.renamed(by, change.title) : s.chatChanged(by);
  switch (change.action) {
    case "joined":
    case "added":
      return isOwn ? s.joined(name) : s.added(by, name);
    case "left":
    case "removed":
      return isOwn ? s.left(name) : s.removed(by, name);
    default:
      return change.role ? s.roleChanged(by, name, s.roles[change.role] ?? change.role) : s.chatChanged(by);
  }
}

/** The line under a chat's title, without its sender. */
export function lineOf(entry: Entry, people: Pick<People, "name">): string {
  if (entry.deleted) return s.deletedMessage;
  if (entry.kind === "message") return entry.content.trim() || fileLine(entry);
  if (entry.kind === "edit") return s.didEdit;
  if (entry.kind === "delete") return s.didDelete;
  if (entry.kind === "reaction") return s.didReact(entry.reaction ?? "");
  return eventText(entry, people);
}

function fileLine(entry: Entry): string {
  const [file] = entry.attachments ?? [];
  if (!file) return "";
  return file.content_type.startsWith("image/") ? s.photo : file.name || s.file;
}

function parsed(content: string): Change {
  try {
    const found: unknown = JSON.parse(content);
    return typeof found === "object" && found !== null ? found : {};
  } catch {
    return {};
  }
}
