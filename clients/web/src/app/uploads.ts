/** Files that go with the next message: uploaded while the person writes, and while they look at other chats. */

import { signal } from "@preact/signals";
import { CannotConnect, type Chat, type Client, type DraftFile, RequestRefused } from "parley-chat";
import { framed } from "./live.js";

/**
 * `cut`: there is no connection, it goes on with the next one. `left`: another page has begun it, and only the person can
 * say which file it was.
 */
export type UploadState = "uploading" | "done" | "failed" | "cut" | "left";

export interface Upload {
  readonly id: number;
  readonly name: string;
  readonly size: number;
  /** Null if another page had it. */
  readonly file: File | null;
  readonly there: number;
  readonly state: UploadState;
  readonly attachmentId: string | null;
  /** Why it failed. */
  readonly reason: string;
}

/** Of a chunk of its own: most visits upload nothing. */
export const filesOf = async (chat: Chat) => (await import("parley-chat/files")).filesOf(chat);

const FILES_MAX = 10;
const AT_ONCE_MAX = 2;

const uploads = new WeakMap<Client, Map<string, Uploads>>();

/** Those of a chat: the same ones for as long as the page lives. */
export function uploadsOf(chat: Chat): Uploads {
  const all = uploads.get(chat.client) ?? new Map<string, Uploads>();
  uploads.set(chat.client, all);
  const found = all.get(chat.chatId) ?? new Uploads(chat);
  all.set(chat.chatId, found);
  return found;
}

/** Nobody is signed in any more. */
export function stopUploads(client: Client): void {
  for (const one of uploads.get(client)?.values() ?? []) one.stop();
}

export class Uploads {
  readonly #chat: Chat;
  readonly all = signal<readonly Upload[]>([]);
  /** What a draft keeps of them is another: who writes it says how it is saved, else it is put to what is saved. */
  onKept: (() => void) | null = null;
  readonly #controllers = new Map<number, AbortController>();
  #nextId = 1;
  #running = 0;
  #next: readonly Upload[] = [];
  readonly #show = framed(() => {
    this.all.value = this.#next;
  });

  constructor(chat: Chat) {
    this.#chat = chat;
    chat.client.on("connection", () => chat.client.isOnline && this.#resume());
  }

  add(files: Iterable<File>): void {
    for (const file of files) {
      if (this.#next.length >= FILES_MAX) break;
      this.#put(file.name, file.size, { file });
    }
    this.#showNow();
    this.#work();
  }

  remove(id: number): void {
    const removed = this.#next.find((upload) => upload.id === id);
    this.#controllers.get(id)?.abort();
    this.#next = this.#next.filter((upload) => upload.id !== id);
    this.#showNow();
    if (removed?.attachmentId) {
      const { attachmentId } = removed;
      void filesOf(this.#chat)
        .then((files) => files.discard(attachmentId))
        .catch(() => {});
    }
    this.#keep();
  }

  /** Go on with one that failed; with one that another page has begun, by the same file. Whether it is that one. */
  retry(id: number, file?: File): boolean {
    const found = this.#next.find((upload) => upload.id === id);
    if (!found || (file && file.size !== found.size)) return false;
    this.#change(id, { state: "uploading", reason: "", ...(file && { file }) });
    this.#showNow();
    this.#work();
    return true;
  }

  /** The files are part of a message now. */
  take(): string[] {
    const ids = this.#next.flatMap(({ attachmentId, state }) => (state === "done" && attachmentId) || []);
    this.#next = [];
    this.#showNow();
    return ids;
  }

  /** What a draft keeps of them. */
  get kept(): readonly DraftFile[] {
    return this.#next.flatMap(({ attachmentId, name, size }) =>
      attachmentId ? { attachmentId, name, size } : [],
    );
  }

  /** Put those of a draft back, as far as the server has them. */
  async restore(kept: readonly DraftFile[]): Promise<void> {
    const known = new Set(this.#next.map(({ attachmentId }) => attachmentId));
    for (const { attachmentId, name, size } of kept) {
      if (known.has(attachmentId)) continue;
      try {
        const { attachment, upload, status } = await (await filesOf(this.#chat)).info(attachmentId);
        if (status === "attached") continue;
        if (attachment) {
          const { name: called, size: there } = attachment;
          this.#put(called, there, { attachmentId, state: "done", there });
        } else if (upload) this.#put(name, size, { attachmentId, state: "left", there: upload.received });
      } catch (error) {
        // What is gone is no part of the draft any more.
        if (error instanceof CannotConnect) this.#put(name, size, { attachmentId, state: "left" });
      }
    }
    this.#showNow();
  }

  /** Whether a message would go without one of them. */
  get isBusy(): boolean {
    return this.all.value.some(({ state }) => state !== "done" && state !== "failed");
  }

  stop(): void {
    for (const controller of this.#controllers.values()) controller.abort();
  }

  #put(name: string, size: number, more: Partial<Upload>): void {
    const id = this.#nextId++;
    const upload: Upload = {
      id,
      name,
      size,
      file: null,
      there: 0,
      state: "uploading",
      attachmentId: null,
      reason: "",
      ...more,
    };
    this.#next = [...this.#next, upload];
  }

  #resume(): void {
    for (const { id, state } of this.#next) if (state === "cut") this.#change(id, { state: "uploading" });
    this.#work();
  }

  #work(): void {
    for (const upload of this.#next) {
      if (this.#running >= AT_ONCE_MAX) return;
      const { id, state, file } = upload;
      if (file && state === "uploading" && !this.#controllers.has(id)) void this.#run(id, file);
    }
  }

  async #run(id: number, file: File): Promise<void> {
    const controller = new AbortController();
    this.#controllers.set(id, controller);
    this.#running += 1;
    const attachmentId = this.#next.find((upload) => upload.id === id)?.attachmentId;
    try {
      const files = await filesOf(this.#chat);
      const { attachment_id } = await files.upload(file, {
        signal: controller.signal,
        progress: (there) => this.#change(id, { there }),
        onBegin: (begun) => {
          this.#change(id, { attachmentId: begun });
          this.#keep();
        },
        ...(attachmentId && { attachmentId }),
      });
      this.#change(id, { state: "done", there: file.size, attachmentId: attachment_id });
    } catch (error) {
      if (error instanceof CannotConnect) this.#change(id, { state: "cut" });
      else this.#failed(id, error);
    }
    this.#controllers.delete(id);
    this.#running -= 1;
    this.#work();
  }

  #failed(id: number, error: unknown): void {
    const isGone = error instanceof RequestRefused && error.code === "not_found";
    const reason = error instanceof Error ? error.message : "";
    // What the server has let go of begins again.
    this.#change(id, { state: "failed", reason, ...(isGone && { attachmentId: null, there: 0 }) });
  }

  #change(id: number, change: Partial<Upload>): void {
    this.#next = this.#next.map((upload) => (upload.id === id ? { ...upload, ...change } : upload));
    this.#show();
  }

  #keep(): void {
    if (this.onKept) this.onKept();
    else void this.#keepAlone().catch(() => {});
  }

  async #keepAlone(): Promise<void> {
    const draft = await this.#chat.draft();
    await this.#chat.saveDraft({ text: "", ...draft, files: this.kept });
  }

  #showNow(): void {
    this.all.value = this.#next;
  }
}
