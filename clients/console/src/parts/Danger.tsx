/** What cannot be taken back: what it concerns, a reason where one is kept, and a button that says what it does. */

import { useSignal } from "@preact/signals";
import { Alert, Button, Field } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog } from "parley-ui/Dialog.js";
import type { ComponentChildren } from "preact";
import { reloadShown } from "../app/feed.js";
import { told } from "../app/words.js";
import { s } from "../strings.en.js";

type DangerProps = {
  /** The button: "Disable". The dialog is called "Disable?". */
  action: string;
  /** What else it is called. */
  title?: string;
  /** What it concerns, and what will be so afterwards. */
  children: ComponentChildren;
  /** A reason must be given. */
  needsReason?: boolean;
  reasonMax?: number;
  /** What must be typed before, and what the field is called. */
  typed?: { readonly label: string; readonly text: string };
  /** It is not dangerous: the button is not red. */
  isHarmless?: boolean;
  isDisabled?: boolean;
  isWide?: boolean;
  /** An error that it throws is shown, and the dialog stays. Otherwise it closes, and the page is asked for again. */
  onDo: (reason: string) => Promise<unknown>;
  onClose: () => void;
};

const REASON_CHARS_MAX = 200;

export function Danger(props: DangerProps) {
  const { action, typed, onDo, onClose } = props;
  const reason = useSignal("");
  const confirmed = useSignal("");
  const failure = useSignal("");
  const isBusy = useSignal(false);
  const lacksReason = props.needsReason === true && !reason.value.trim();
  const lacksText = typed !== undefined && confirmed.value.trim() !== typed.text;
  const isWaiting = isBusy.value || lacksReason || lacksText || props.isDisabled === true;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isWaiting) return;
    isBusy.value = true;
    failure.value = "";
    try {
      await onDo(reason.value.trim());
      reloadShown();
      onClose();
    } catch (error) {
      failure.value = told(error);
      isBusy.value = false;
    }
  };
  return (
    <Dialog title={props.title ?? `${action}?`} onClose={onClose} isWide={props.isWide ?? false}>
      <form class={controls.form} onSubmit={submit}>
        {props.children}
        {props.needsReason && (
          <Field
            label={s.reason}
            value={reason}
            hint={s.reasonHint}
            maxLength={props.reasonMax ?? REASON_CHARS_MAX}
            required
          />
        )}
        {typed && (
          <Field
            label={typed.label}
            value={confirmed}
            hint={s.typeToConfirm(typed.text)}
            autoComplete="off"
            required
          />
        )}
        {failure.value && <Alert>{failure.value}</Alert>}
        <div class={controls.buttons}>
          <Button onClick={onClose}>{s.cancel}</Button>
          <Button type="submit" look={props.isHarmless ? "primary" : "danger"} disabled={isWaiting}>
            {action}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
