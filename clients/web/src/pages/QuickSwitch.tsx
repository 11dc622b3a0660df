/** Go to a chat by a few letters of its name. */

import { useSignal } from "@preact/signals";
import { Avatar } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog } from "parley-ui/Dialog.js";
import { go, hrefOf } from "../app/route.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import c from "./Search.module.css";

const SHOWN_MAX = 8;
/** Its list is a listbox, so it needs no datalist. */
const COMBOBOX = { role: "combobox", "aria-expanded": true } as object;

export default function QuickSwitch({ onClose }: { onClose: () => void }) {
  const { chats } = useApp();
  const query = useSignal("");
  const chosen = useSignal(0);
  const wanted = query.value.trim().toLocaleLowerCase();
  const found = chats.sorted.value
    .map((row) => ({ row, title: plainName(chats.titleOf(row.chatId)) }))
    .filter(({ title }) => title.toLocaleLowerCase().includes(wanted))
    .slice(0, SHOWN_MAX);
  const choose = (at: number) => {
    const one = found[at];
    if (!one) return;
    onClose();
    go(hrefOf.chat(one.row.chatId));
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && found.length > 0)
      chosen.value = (chosen.value + step + found.length) % found.length;
    else if (event.key === "Enter") choose(chosen.value);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title={s.findChat} onClose={onClose}>
      <input
        {...COMBOBOX}
        class={controls.input}
        aria-label={s.findChat}
        aria-controls="switch-list"
        aria-activedescendant={found.length > 0 ? `switch-${chosen.value}` : undefined}
        value={query.value}
        autofocus
        onInput={(event) => {
          query.value = event.currentTarget.value;
          chosen.value = 0;
        }}
        onKeyDown={keys}
      />
      <div role="listbox" id="switch-list" aria-label={s.chats} tabIndex={-1} class={c.hits}>
        {found.map(({ row, title }, at) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the text field
          <div
            key={row.chatId}
            id={`switch-${at}`}
            role="option"
            tabIndex={-1}
            aria-selected={at === chosen.value}
            class={`${c.hit} ${at === chosen.value ? c.chosen : ""}`}
            onClick={() => choose(at)}
          >
            <Avatar id={row.peerId ?? row.chatId} name={title} size={32} isGroup={row.type === "group"} />
            <bdi class={c.name}>{title}</bdi>
          </div>
        ))}
      </div>
    </Dialog>
  );
}
