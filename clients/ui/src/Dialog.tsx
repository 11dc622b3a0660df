/** A modal dialog. The browser keeps the focus in it, and gives it back. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button, IconButton } from "./controls.js";
import c from "./controls.module.css";
import { s } from "./strings.en.js";

/** Of a field that searches in a dialog: a real search field keeps Escape for itself, and the dialog stays. */
export const SEARCHBOX = { type: "text", role: "searchbox", autocomplete: "off" } as object;

type DialogProps = {
  title: string;
  onClose: () => void;
  isWide?: boolean;
  children: ComponentChildren;
  class?: string;
};

export function Dialog({ title, onClose, isWide = false, children, class: more = "" }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`${c.dialog} ${isWide ? c.wide : ""} ${more}`}
      aria-labelledby={id}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
      onKeyDown={(event) => event.key === "Escape" && event.stopPropagation()}
    >
      <div class={c.dialogHead}>
        <h2 id={id}>{title}</h2>
        <IconButton icon="close" name={s.close} onClick={onClose} />
      </div>
      <div class={c.dialogBody}>{children}</div>
    </dialog>
  );
}

type QuestionProps = {
  title: string;
  hint?: string;
  action: string;
  onDo: () => void;
  onClose: () => void;
  children?: ComponentChildren;
  isDisabled?: boolean;
};

/** Asks before something that cannot be undone. */
export function Question({
  title,
  hint,
  action,
  onDo,
  onClose,
  children,
  isDisabled = false,
}: QuestionProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      {hint && <p>{hint}</p>}
      {children}
      <div class={c.buttons}>
        <Button onClick={onClose}>{s.cancel}</Button>
        <Button look="danger" onClick={onDo} disabled={isDisabled}>
          {action}
        </Button>
      </div>
    </Dialog>
  );
}
