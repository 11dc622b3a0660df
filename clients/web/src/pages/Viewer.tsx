/** A picture, as large as the screen allows. */

import { useComputed, useSignal } from "@preact/signals";
import { type AttachedFile, RequestRefused } from "parley-chat";
import { IconButton } from "parley-ui/controls.js";
import { Dialog } from "parley-ui/Dialog.js";
import { useEffect } from "preact/hooks";
import type { Conversation } from "../app/conversation.js";
import { s } from "../strings.en.js";
import { isPicture } from "./Attachments.js";
import c from "./Viewer.module.css";

const longest = (file: AttachedFile) => Math.max(file.width ?? 0, file.height ?? 0);

type ViewerProps = { file: AttachedFile; conversation: Conversation; onClose: () => void };

export default function Viewer({ file, conversation, onClose }: ViewerProps) {
  const shown = useSignal(file);
  const address = useSignal("");
  const isLarge = useSignal(false);
  const isLoaded = useSignal(false);
  const isGone = useSignal(false);
  const all = useComputed(() =>
    (conversation.window.value?.messages ?? []).flatMap(({ entry }) =>
      (entry.attachments ?? []).filter(isPicture),
    ),
  );
  const now = shown.value;
  const at = all.value.findIndex((one) => one.attachment_id === now.attachment_id);
  const move = (step: number) => {
    const next = all.value[at + step];
    if (!next) return;
    isLarge.value = isLoaded.value = false;
    address.value = "";
    shown.value = next;
  };
  useEffect(() => {
    let isLeft = false;
    isGone.value = false;
    // As large as the screen shows it; all of it when the person looks closer.
    const pixels = isLarge.value ? Number.POSITIVE_INFINITY : Math.max(innerWidth, innerHeight);
    conversation.pictureAddress(now.attachment_id, Math.min(pixels, longest(now)) * devicePixelRatio).then(
      (found) => {
        if (!isLeft) address.value = found;
      },
      (error) => {
        if (!isLeft) isGone.value = error instanceof RequestRefused && !error.temporary;
      },
    );
    return () => {
      isLeft = true;
    };
  }, [now, isLarge.value]);
  return (
    <Dialog title={s.picture} onClose={onClose} class={c.viewer ?? ""}>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the keys of the buttons below */}
      <div
        class={c.stage}
        onKeyDown={(event) => {
          if (event.key === "ArrowLeft") move(-1);
          if (event.key === "ArrowRight") move(1);
        }}
      >
        <div class={`${c.frame} ${isLarge.value ? c.large : ""}`}>
          {isGone.value ? (
            <p role="alert" class={c.gone}>
              {s.pictureGone}
            </p>
          ) : (
            <img
              key={now.attachment_id}
              class={isLoaded.value ? "" : c.blurred}
              src={address.value || now.preview || undefined}
              alt={now.name}
              width={now.width}
              height={now.height}
              onLoad={(event) => {
                isLoaded.value = event.currentTarget.src !== now.preview;
              }}
              onError={() => {
                isGone.value = true;
              }}
            />
          )}
        </div>
        <div class={c.bar}>
          <IconButton icon="back" name={s.previous} disabled={at <= 0} onClick={() => move(-1)} />
          <bdi class={c.name}>{now.name}</bdi>
          <IconButton
            icon="search"
            name={s.zoom}
            aria-pressed={isLarge.value}
            onClick={() => {
              isLarge.value = !isLarge.value;
            }}
          />
          <IconButton
            icon="download"
            name={s.download(now.name)}
            onClick={() => void conversation.download(now).catch(() => conversation.say(s.downloadFailed))}
          />
          <span class={c.forward}>
            <IconButton
              icon="back"
              name={s.next}
              disabled={at < 0 || at >= all.value.length - 1}
              onClick={() => move(1)}
            />
          </span>
        </div>
      </div>
    </Dialog>
  );
}
