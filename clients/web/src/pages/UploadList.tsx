/** The files of the next message, and how far they have come. */

import { useSignal } from "@preact/signals";
import { Button, IconButton } from "parley-ui/controls.js";
import { Icon } from "parley-ui/Icon.js";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Upload, Uploads } from "../app/uploads.js";
import { s } from "../strings.en.js";
import { sizeOf } from "./Attachments.js";
import c from "./UploadList.module.css";

const WHOLE = 100;

export default function UploadList({ uploads }: { uploads: Uploads }) {
  const all = uploads.all.value;
  if (all.length === 0) return null;
  return (
    <ul class={c.list} aria-label={s.files}>
      {all.map((upload) => (
        <li key={upload.id} class={c.item} data-state={upload.state}>
          <Thumb file={upload.file} />
          <span class={c.text}>
            <bdi class={c.name}>{upload.name}</bdi>
            <Progress upload={upload} />
          </span>
          {upload.state === "left" && <ChooseAgain upload={upload} uploads={uploads} />}
          {(upload.state === "failed" || upload.state === "cut") && (
            <Button onClick={() => uploads.retry(upload.id)}>{s.tryAgain}</Button>
          )}
          <IconButton
            icon="close"
            size={18}
            name={upload.state === "done" ? s.removeFile(upload.name) : s.cancelUpload(upload.name)}
            onClick={() => uploads.remove(upload.id)}
          />
        </li>
      ))}
    </ul>
  );
}

function Progress({ upload: { name, size, there, state, reason } }: { upload: Upload }) {
  if (state === "failed") return <span class={c.failed}>{s.uploadFailed(name, reason)}</span>;
  if (state === "done") return <span class={c.size}>{sizeOf(size)}</span>;
  const done = s.sizeOf(sizeOf(there), sizeOf(size));
  return (
    <>
      <progress
        aria-label={s.uploading(name)}
        max={WHOLE}
        value={Math.floor((there / Math.max(1, size)) * WHOLE)}
      />
      <span class={c.size}>
        {state === "uploading" ? done : `${done} · ${state === "cut" ? s.uploadCut : s.uploadLeft}`}
      </span>
    </>
  );
}

/** A page cannot open a file again by itself: the person says which one it was. */
function ChooseAgain({ upload, uploads }: { upload: Upload; uploads: Uploads }) {
  const picker = useRef<HTMLInputElement>(null);
  const isOther = useSignal(false);
  return (
    <>
      {isOther.value && <span class={c.failed}>{s.otherFile}</span>}
      <Button onClick={() => picker.current?.click()}>{s.chooseAgain}</Button>
      <input
        ref={picker}
        type="file"
        class="sr"
        tabIndex={-1}
        aria-hidden="true"
        onChange={(event) => {
          const file = event.currentTarget.files?.[0];
          if (file) isOther.value = !uploads.retry(upload.id, file);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

function Thumb({ file }: { file: File | null }) {
  const isImage = file !== null && /^image\/(png|jpeg|gif|webp|avif)$/.test(file.type);
  const address = useMemo(() => (isImage ? URL.createObjectURL(file) : ""), [file]);
  useEffect(() => () => URL.revokeObjectURL(address), [address]);
  if (!isImage) return <Icon name="file" size={28} />;
  return <img class={c.thumb} src={address} alt="" width={44} height={44} />;
}
