/** The files of the next message, and how far they have come. */

import { Button, IconButton } from "parley-ui/controls.js";
import { Icon } from "parley-ui/Icon.js";
import { useEffect, useMemo } from "preact/hooks";
import type { Upload, Uploads } from "../app/uploads.js";
import { s } from "../strings.en.js";
import { sizeOf } from "./Attachments.js";
import c from "./UploadList.module.css";

const WHOLE = 100;

export function UploadList({ uploads }: { uploads: Uploads }) {
  const all = uploads.all.value;
  if (all.length === 0) return null;
  return (
    <ul class={c.list} aria-label={s.files}>
      {all.map((upload) => (
        <li key={upload.id} class={c.item}>
          <Thumb file={upload.file} />
          <span class={c.text}>
            <bdi class={c.name}>{upload.file.name}</bdi>
            <Progress upload={upload} />
          </span>
          {upload.state === "failed" && (
            <Button onClick={() => uploads.retry(upload.id)}>{s.tryAgain}</Button>
          )}
          <IconButton
            icon="close"
            size={18}
            name={
              upload.state === "uploading" ? s.cancelUpload(upload.file.name) : s.removeFile(upload.file.name)
            }
            onClick={() => uploads.remove(upload.id)}
          />
        </li>
      ))}
    </ul>
  );
}

function Progress({ upload: { file, there, state } }: { upload: Upload }) {
  if (state === "failed") return <span class={c.failed}>{s.uploadFailed(file.name)}</span>;
  if (state === "done") return <span class={c.size}>{sizeOf(file.size)}</span>;
  return (
    <progress
      aria-label={s.uploading(file.name)}
      max={WHOLE}
      value={Math.floor((there / Math.max(1, file.size)) * WHOLE)}
    />
  );
}

function Thumb({ file }: { file: File }) {
  const isImage = /^image\/(png|jpeg|gif|webp|avif)$/.test(file.type);
  const address = useMemo(() => (isImage ? URL.createObjectURL(file) : ""), [file]);
  useEffect(() => () => URL.revokeObjectURL(address), [address]);
  if (!isImage) return <Icon name="file" size={28} />;
  return <img class={c.thumb} src={address} alt="" width={44} height={44} />;
}
