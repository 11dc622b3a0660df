/** Files that go with the next message: uploaded while the person writes. */

import { signal } from "@preact/signals";
import type { Chat } from "parley-chat";
import { filesOf } from "parley-chat/files";
import { framed } from "./live.js";

export interface Upload {
  readonly id: number;
  readonly file: File;
  readonly there: number;
  readonly state: "uploading" | "done" | "failed";
  readonly attachmentId: string | null;
}

const FILES_MAX = 10;
const AT_ONCE_MAX = 2;

export class Uploads {
  readonly #chat: Chat;
  readonly all = signal<readonly Upload[]>([]);
  readonly #controllers = new Map<number, AbortController>();
  /** What an upload that broke off goes on with. */
  readonly #begun = new Map<number, string>();
  #nextId = 1;
  #running = 0;
  #next: readonly Upload[] = [];
  readonly #show = framed(() => {
    this.all.value = this.#next;
  });

  constructor(chat: Chat) {
    this.#chat = chat;
  }

  add(files: Iterable<File>): void {
    for (const file of files) {
      if (this.#next.length >= FILES_MAX) return;
      this.#next = [
        ...this.#next,
        { id: this.#nextId++, file, there: 0, state: "uploading", attachmentId: null },
      ];
    }
    this.all.value = this.#next;
    this.#work();
  }

  remove(id: number): void {
    const removed = this.#next.find((upload) => upload.id === id);
    this.#controllers.get(id)?.abort();
    this.#next = this.#next.filter((upload) => upload.id !== id);
    this.all.value = this.#next;
    const attachmentId = removed?.attachmentId ?? this.#begun.get(id);
    if (attachmentId)
      filesOf(this.#chat)
        .discard(attachmentId)
        .catch(() => {});
  }

  /** Go on with one that failed. */
  retry(id: number): void {
    this.#change(id, { state: "uploading" });
    this.#work();
  }

  /** The files are part of a message now. */
  take(): string[] {
    const ids = this.#next.flatMap(({ attachmentId }) => attachmentId ?? []);
    this.#next = [];
    this.all.value = [];
    return ids;
  }

  get isBusy(): boolean {
    return this.all.value.some(({ state }) => state === "uploading");
  }

  stop(): void {
    for (const controller of this.#controllers.values()) controller.abort();
  }

  #work(): void {
    for (const upload of this.#next) {
      if (this.#running >= AT_ONCE_MAX) return;
      if (upload.state === "uploading" && !this.#controllers.has(upload.id)) void this.#run(upload);
    }
  }

  async #run({ id, file }: Upload): Promise<void> {
    const controller = new AbortController();
    this.#controllers.set(id, controller);
    this.#running += 1;
    try {
      const attachmentId = this.#begun.get(id);
      const { attachment_id } = await filesOf(this.#chat).upload(file, {
        signal: controller.signal,
        progress: (there) => this.#change(id, { there }),
        onBegin: (begun) => this.#begun.set(id, begun),
        ...(attachmentId && { attachmentId }),
      });
      this.#change(id, { state: "done", there: file.size, attachmentId: attachment_id });
    } catch {
      this.#change(id, { state: "failed" });
    }
    this.#controllers.delete(id);
    this.#running -= 1;
    this.#work();
  }

  #change(id: number, change: Partial<Upload>): void {
    this.#next = this.#next.map((upload) => (upload.id === id ? { ...upload, ...change } : upload));
    this.#show();
  }
}
