/** Files of messages: uploads that go on where they were, and downloads that do. */

import type { Chat, SendOptions } from "./chat.js";
import type { AttachedFile, AttachmentInfo, AttachmentUpload } from "./contract.js";
import { CannotConnect, RequestRefused } from "./core/errors.js";
import { type Http, parsed } from "./http.js";
import type { Sending } from "./sending.js";
import { hexOf, Sha256 } from "./sha256.js";

const CHUNK_BYTES = 1024 * 1024;
/** So often in a row a transfer may fail without getting further. */
const TRIES_MAX = 8;
const RETRY_MS = 500;
const RETRY_MS_MAX = 10_000;
const PARTIAL = 206;

/** Called with how many bytes are there, and how many there will be. */
export type OnProgress = (there: number, whole: number) => void;

export interface TransferOptions {
  readonly progress?: OnProgress;
  /** Ends the transfer, with its reason. What came of an upload stays: `attachmentId` goes on with it. */
  readonly signal?: AbortSignal;
}

export interface UploadOptions extends TransferOptions {
  /** The name of a File, if it is left out. */
  readonly name?: string;
  /** The type of the file, if it is left out. */
  readonly contentType?: string;
  /** Go on with an upload that another page has begun. */
  readonly attachmentId?: string;
  /** Called with the id of an upload that begins, so that a later page can go on with it. */
  readonly onBegin?: (attachmentId: string) => void;
}

/** The answer to a range: how much is stored, and the file once all of it is. */
interface Progress {
  readonly received: number;
  readonly attachment?: AttachedFile;
}

/** The files of a chat. */
export function filesOf(chat: Chat): Files {
  return new Files(chat);
}

/** RequestRefused or CannotConnect when a transfer cannot go on. Broken connections are mended. */
export class Files {
  readonly #chat: Chat;

  /** @internal */
  constructor(chat: Chat) {
    this.#chat = chat;
  }

  /** Upload a file; its id goes with a message. */
  async upload(file: Blob, options: UploadOptions = {}): Promise<AttachedFile> {
    let upload: AttachmentUpload | undefined;
    if (options.attachmentId === undefined) {
      upload = await this.#announce(file, options);
      options.onBegin?.(upload.attachment_id);
    } else {
      const info = await this.info(options.attachmentId);
      if (info.attachment) return complete(info.attachment, options);
      upload = info.upload;
    }
    if (!upload) throw notThere("this upload is over");
    return this.#sendAll(file, upload, options);
  }

  /** Upload a file, and put a message that refers to it into the outbox. */
  async send(file: Blob, content = "", options: UploadOptions & SendOptions = {}): Promise<Sending> {
    const { attachment_id } = await this.upload(file, options);
    const { mentions = [], replyTo, displayTime } = options;
    const more = { ...(replyTo && { replyTo }), ...(displayTime && { displayTime }) };
    return this.#chat.send(content, { attachments: [attachment_id], mentions, ...more });
  }

  /** A file, and an address to read it from, which is good for some minutes. */
  info(attachmentId: string): Promise<AttachmentInfo> {
    return this.#http.call("GET /v1/chats/{chat_id}/attachments/{attachment_id}", {
      path: this.#path(attachmentId),
    });
  }

  /** Remove a file of your own that no message refers to. */
  async discard(attachmentId: string): Promise<void> {
    await this.#http.call("DELETE /v1/chats/{chat_id}/attachments/{attachment_id}", {
      path: this.#path(attachmentId),
    });
  }

  /** The bytes of a file, compared with its digest. */
  async download(attachmentId: string, options: TransferOptions = {}): Promise<Blob> {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    const file = await this.#fetchAll(attachmentId, parts, options);
    const digest = new Sha256();
    for (const part of parts) digest.update(part);
    if (hexOf(digest.digest()) === file.sha256) return new Blob(parts, { type: file.content_type });
    throw refusal("checksum_mismatch", "what was downloaded is not the file; try again");
  }

  async #announce(file: Blob, options: UploadOptions): Promise<AttachmentUpload> {
    const digest = new Sha256();
    for (let at = 0; at < file.size; at += CHUNK_BYTES) {
      options.signal?.throwIfAborted();
      digest.update(new Uint8Array(await file.slice(at, at + CHUNK_BYTES).arrayBuffer()));
    }
    const name = options.name ?? (file as Partial<File>).name ?? "file";
    const content_type = options.contentType || file.type || "application/octet-stream";
    const body = { name, size: file.size, content_type, sha256: hexOf(digest.digest()) };
    const path = { chat_id: this.#chat.chatId };
    return this.#http.call("POST /v1/chats/{chat_id}/attachments", { path, body });
  }

  async #sendAll(file: Blob, begun: AttachmentUpload, options: TransferOptions): Promise<AttachedFile> {
    let upload = begun;
    let [tries, received] = [0, upload.received];
    for (;;) {
      options.progress?.(received, file.size);
      try {
        const told = await this.#sendRange(file, upload, received, options);
        [tries, received] = [0, told.received];
        if (told.attachment) return complete(told.attachment, options);
      } catch (error) {
        tries += 1;
        // An address ends with the token that asked for it: with the present one there may be another.
        if (tries > TRIES_MAX || !(mayRetry(error) || codeOf(error) === "not_found")) throw error;
        await this.#wait(tries, options);
        const info = await this.info(upload.attachment_id).catch((failed) => {
          if (!(failed instanceof CannotConnect)) throw failed;
        });
        if (info?.attachment) return complete(info.attachment, options);
        if (!info) continue;
        if (!info.upload) throw error;
        if (info.upload.received > received) tries = 0;
        upload = info.upload;
        received = upload.received;
      }
    }
  }

  async #sendRange(
    file: Blob,
    upload: AttachmentUpload,
    start: number,
    options: TransferOptions,
  ): Promise<Progress> {
    const { size } = file;
    const end = Math.min(start + upload.part_bytes, size);
    const range = start < size ? `bytes ${start}-${end - 1}/${size}` : `bytes */${size}`;
    const answer = await transfer(this.#http, upload.upload_url, {
      method: "PUT",
      headers: { "Content-Range": range },
      ...(start < size && { body: file.slice(start, end, "application/octet-stream") }),
      ...(options.signal && { signal: options.signal }),
    });
    return answer.json();
  }

  async #fetchAll(
    attachmentId: string,
    parts: Uint8Array<ArrayBuffer>[],
    options: TransferOptions,
  ): Promise<AttachedFile> {
    const there = () => parts.reduce((sum, part) => sum + part.length, 0);
    for (let tries = 0; ; ) {
      const before = there();
      try {
        return await this.#fetch(attachmentId, parts, before, options);
      } catch (error) {
        tries = there() > before ? 1 : tries + 1;
        if (tries > TRIES_MAX || !mayRetry(error)) throw error;
        await this.#wait(tries, options);
      }
    }
  }

  /** Get what is missing of a file, from an address that is new. */
  async #fetch(
    attachmentId: string,
    parts: Uint8Array<ArrayBuffer>[],
    start: number,
    { progress, signal }: TransferOptions,
  ): Promise<AttachedFile> {
    const { attachment, url } = await this.info(attachmentId);
    if (!attachment || !url) throw refusal("not_uploaded", "this file is not uploaded completely");
    if (start >= attachment.size) return attachment;
    const headers: Record<string, string> = start > 0 ? { Range: `bytes=${start}-` } : {};
    const answer = await transfer(this.#http, url, { headers, ...(signal && { signal }) });
    if (answer.status !== PARTIAL) parts.length = 0;
    let there = answer.status === PARTIAL ? start : 0;
    const reader = (answer.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
    try {
      for (let read = await reader.read(); !read.done; read = await reader.read()) {
        parts.push(read.value);
        there += read.value.length;
        progress?.(there, attachment.size);
      }
    } catch (error) {
      signal?.throwIfAborted();
      throw new CannotConnect("the download broke off", { cause: error });
    }
    if (there < attachment.size) throw new CannotConnect("the download broke off");
    return attachment;
  }

  get #http() {
    return this.#chat.client.http;
  }

  #path(attachmentId: string) {
    return { chat_id: this.#chat.chatId, attachment_id: attachmentId };
  }

  async #wait(tries: number, { signal }: TransferOptions): Promise<void> {
    const pause = Math.min(RETRY_MS * 2 ** (tries - 1), RETRY_MS_MAX);
    await new Promise<void>((resolve) => void this.#chat.client.platform.after(pause, resolve));
    signal?.throwIfAborted();
  }
}

function complete(file: AttachedFile, { progress }: UploadOptions): AttachedFile {
  progress?.(file.size, file.size);
  return file;
}

function mayRetry(error: unknown): boolean {
  if (error instanceof CannotConnect) return true;
  return error instanceof RequestRefused && (error.temporary || error.code === "wrong_range");
}

function codeOf(error: unknown): string | undefined {
  return error instanceof RequestRefused ? error.code : undefined;
}

function refusal(code: string, reason: string): RequestRefused {
  return new RequestRefused({ code, reason, temporary: false });
}

const notThere = (reason: string) => refusal("not_found", reason);

/** A request to a signed address, which needs no token. The reason of the caller's signal is what the caller gets. */
async function transfer(http: Http, address: string, init: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await http.fetch(address, init);
  } catch (error) {
    throw init.signal?.aborted ? init.signal.reason : error;
  }
  if (answer.status >= 400) throw http.refused(answer.status, parsed(await answer.text()));
  return answer;
}
