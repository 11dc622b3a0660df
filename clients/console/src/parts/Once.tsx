/** A secret that the server shows once, and then has only the hash of. */

import { Button } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog } from "parley-ui/Dialog.js";
import { s } from "../strings.en.js";
import { Id } from "./parts.js";

export function Once({
  title,
  hint,
  secret,
  onClose,
}: {
  title: string;
  hint: string;
  secret: string;
  onClose: () => void;
}) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{hint}</p>
      <p data-secret>
        <Id of={secret} />
      </p>
      <div class={controls.buttons}>
        <Button look="primary" onClick={onClose}>
          {s.shownOnce.close}
        </Button>
      </div>
    </Dialog>
  );
}
