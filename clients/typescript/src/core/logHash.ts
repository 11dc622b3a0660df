/**
 * The hash of a log: one value that follows from every position up to a number. Pure.
 *
 * The hash at 0 names the chat. The hash at n is the SHA-256 of the hash at n - 1 and of what never changes
 * about the position n. docs/PROTOCOL.md defines it.
 */

import type { AttachedFile, Entry } from "../contract.js";
import { hexOf, Sha256, sha256 } from "../sha256.js";

const VERSION = 1;
/** Another way to compute it gets another number. Who does not know a version does not compare. */
const PREFIX = `${VERSION}:`;

const utf8 = new TextEncoder();
const bytesOf = (value: unknown): Uint8Array => utf8.encode(JSON.stringify(value));

/** The hash at 0. */
export const emptyLog = (chatId: string): Uint8Array => sha256(bytesOf(["parley log", VERSION, chatId]));

const after = (previous: Uint8Array, fixed: unknown): Uint8Array =>
  new Sha256().update(previous).update(bytesOf(fixed)).digest();

const fixedOf = (file: AttachedFile): unknown => [
  file.attachment_id,
  file.name,
  file.size,
  file.content_type,
  file.sha256,
  file.width || null,
  file.height || null,
  file.preview || null,
];

/** What stands for an entry's body: its digest, or the one that was kept when the body was replaced. */
export function bodyDigest(entry: Entry): string {
  if (entry.body_digest !== undefined) return entry.body_digest;
  const body: unknown[] = [entry.content_type, entry.mentions ?? [], entry.content];
  if (entry.attachments?.length) body.push(entry.attachments.map(fixedOf));
  return hexOf(sha256(bytesOf(body)));
}

/** The hash with this entry, which is at the next position. */
export function afterEntry(previous: Uint8Array, entry: Entry): Uint8Array {
  const fixed: unknown[] = [
    entry.sequence,
    entry.kind,
    entry.message_id,
    entry.sender_id,
    entry.client_message_id,
    entry.created_at,
    entry.display_time ?? null,
    bodyDigest(entry),
  ];
  if (entry.target_id || entry.reply_to || entry.on !== undefined) {
    fixed.push(entry.reply_to || null, entry.target_id || null, entry.on ?? null);
  }
  return after(previous, fixed);
}

/** The hash with a void, which is at the next position. */
export const afterVoid = (previous: Uint8Array, sequence: number): Uint8Array => after(previous, [sequence]);

/** As it travels: the version, a colon, 64 hexadecimal digits. */
export const shown = (value: Uint8Array): string => PREFIX + hexOf(value);

/** Whether a hash that travelled is of the version that this program computes. */
export const isReadable = (text: string): boolean => text.startsWith(PREFIX);

/** The bytes of a readable hash. */
export const readShown = (text: string): Uint8Array =>
  Uint8Array.from(text.slice(PREFIX.length).match(/../g) ?? [], (digits) => Number.parseInt(digits, 16));
