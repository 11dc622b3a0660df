/** Choose an emoji: the table is loaded when it is first wanted. */

import { useSignal } from "@preact/signals";
import controls from "parley-ui/controls.module.css";
import { Dialog, SEARCHBOX } from "parley-ui/Dialog.js";
import { useEffect } from "preact/hooks";
import { s } from "../strings.en.js";
import type { EmojiGroup } from "../text/emoji.js";
import c from "./EmojiDialog.module.css";

export const QUICK = ["👍", "❤️", "😂", "😮", "😢", "🙏", "🎉", "👀"];

export default function EmojiDialog({
  onChoose,
  onClose,
}: {
  onChoose: (emoji: string) => void;
  onClose: () => void;
}) {
  const groups = useSignal<readonly EmojiGroup[]>([]);
  const query = useSignal("");
  useEffect(() => {
    void import("../text/emoji.js").then((loaded) => {
      groups.value = loaded.groups;
    });
  }, []);
  const wanted = query.value.trim().toLowerCase();
  return (
    <Dialog title={s.emoji} onClose={onClose}>
      <div class={c.quick}>
        {QUICK.map((emoji) => (
          <button
            key={emoji}
            type="button"
            class={c.emoji}
            aria-label={emoji}
            onClick={() => onChoose(emoji)}
          >
            {emoji}
          </button>
        ))}
      </div>
      <input
        {...SEARCHBOX}
        class={controls.input}
        aria-label={s.findEmoji}
        placeholder={s.findEmoji}
        value={query.value}
        onInput={(event) => {
          query.value = event.currentTarget.value;
        }}
      />
      <div class={c.all}>
        {groups.value.map((group) => {
          const found = group.emoji.filter(([, name]) => !wanted || name.includes(wanted));
          if (found.length === 0) return null;
          return (
            <section key={group.name} aria-label={group.name}>
              <h3 class={controls.label}>{group.name}</h3>
              <div class={c.grid}>
                {found.map(([emoji, name]) => (
                  <button
                    key={emoji}
                    type="button"
                    class={c.emoji}
                    aria-label={name}
                    title={name}
                    onClick={() => onChoose(emoji)}
                  >
                    {emoji}
                  </button>
                ))}
              </div>
            </section>
          );
        })}
      </div>
    </Dialog>
  );
}
