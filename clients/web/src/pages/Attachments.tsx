/** The files of a message: pictures as they are, others as a card. */

import { useSignal } from "@preact/signals";
import { type AttachedFile, type Entry, RequestRefused } from "parley-chat";
import { IconButton } from "parley-ui/controls.js";
import { Icon } from "parley-ui/Icon.js";
import { useContext, useEffect } from "preact/hooks";
import { s } from "../strings.en.js";
import c from "./Attachments.module.css";
import { ActionsContext } from "./Message.js";
import type { Actions } from "./messageActions.js";

/** As large as the smaller of the pictures that the server makes. */
const SHOWN_MAX = 320;

export function Attachments({ entry }: { entry: Entry }) {
  const files = entry.attachments ?? [];
  if (files.length === 0) return null;
  return (
    <div class={c.files}>
      {files.map((file) =>
        isPicture(file) ? (
          <Picture key={file.attachment_id} file={file} entry={entry} />
        ) : (
          <FileCard key={file.attachment_id} file={file} />
        ),
      )}
    </div>
  );
}

export const isPicture = (file: AttachedFile) => file.width !== undefined && file.height !== undefined;

function Picture({ file, entry }: { file: AttachedFile; entry: Entry }) {
  const { conversation, show } = useContext(ActionsContext) as Actions;
  const address = useSignal("");
  const isGone = useSignal(false);
  const isLoaded = useSignal(false);
  const [width, height] = fitted(file.width ?? 1, file.height ?? 1);
  useEffect(() => {
    let isLeft = false;
    const pixels = Math.max(width, height) * devicePixelRatio;
    conversation.pictureAddress(file.attachment_id, pixels).then(
      (found) => {
        if (!isLeft) address.value = found;
      },
      (error) => {
        // Without a connection its preview stands for it.
        if (!isLeft) isGone.value = error instanceof RequestRefused && !error.temporary;
      },
    );
    return () => {
      isLeft = true;
    };
  }, [file.attachment_id]);
  return (
    <button
      type="button"
      class={c.picture}
      aria-label={file.name}
      onClick={() => show({ dialog: "image", entry, file })}
    >
      <img
        class={isLoaded.value ? "" : c.blurred}
        src={address.value || file.preview || undefined}
        alt={file.name}
        width={width}
        height={height}
        loading="lazy"
        decoding="async"
        onLoad={(event) => {
          isLoaded.value = event.currentTarget.src !== file.preview;
        }}
        onError={() => {
          isGone.value = conversation.app.client.isOnline && !!address.value;
        }}
      />
      {isGone.value && <span class={c.gone}>{s.pictureGone}</span>}
    </button>
  );
}

/** The room that a picture takes, before it is there. */
function fitted(width: number, height: number): readonly [number, number] {
  const scale = Math.min(1, SHOWN_MAX / width, SHOWN_MAX / height);
  return [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
}

function FileCard({ file }: { file: AttachedFile }) {
  const { conversation } = useContext(ActionsContext) as Actions;
  const isBusy = useSignal(false);
  const download = async () => {
    isBusy.value = true;
    try {
      await conversation.download(file);
    } catch {
      conversation.say(s.downloadFailed);
    }
    isBusy.value = false;
  };
  return (
    <div class={c.card}>
      <span class={c.cardIcon}>
        <Icon name="file" size={22} />
      </span>
      <span class={c.cardText}>
        <bdi class={c.cardName}>{file.name}</bdi>
        <span class={c.cardSize}>{sizeOf(file.size)}</span>
      </span>
      <IconButton
        icon="download"
        name={s.download(file.name)}
        disabled={isBusy.value}
        onClick={() => void download()}
      />
    </div>
  );
}

const UNIT = 1024;

export function sizeOf(bytes: number): string {
  const units = ["B", "KB", "MB", "GB"];
  let [value, at] = [bytes, 0];
  for (; value >= UNIT && at < units.length - 1; at += 1) value /= UNIT;
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`;
}
