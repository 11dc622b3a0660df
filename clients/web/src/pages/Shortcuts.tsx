/** Which keys do what. */

import { useSignal } from "@preact/signals";
import { Switch } from "parley-ui/controls.js";
import { Dialog } from "parley-ui/Dialog.js";
import { areKeysOn, setKeysOn } from "../app/keyboard.js";
import { s } from "../strings.en.js";
import c from "./Shortcuts.module.css";

export default function Shortcuts({ onClose }: { onClose: () => void }) {
  const isOn = useSignal(areKeysOn());
  return (
    <Dialog title={s.keyboardShortcuts} onClose={onClose} isWide>
      {s.shortcuts.map(([title, keys]) => (
        <section key={title}>
          <h3 class={c.title}>{title}</h3>
          <dl class={c.keys}>
            {keys.map(([key, does]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
      <Switch
        label={s.singleKeys}
        isOn={isOn.value}
        onChange={(next) => {
          isOn.value = next;
          setKeysOn(next);
        }}
      />
    </Dialog>
  );
}
