/** How sure this device is that it has read all of a chat. */

import { useSignal } from "@preact/signals";
import type { Chat } from "parley-chat";
import { Icon } from "parley-ui/Icon.js";
import { clockTime } from "parley-ui/time.js";
import { useEffect } from "preact/hooks";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import c from "./Completeness.module.css";

const LOOK_MS = 500;
const LOOKS_PER_PROOF = 8;

export function Completeness({ chat }: { chat: Chat }) {
  const { live } = useApp();
  live.watch("log", chat.chatId);
  live.watch("unread", chat.chatId);
  live.watch("receipts", chat.chatId);
  const proof = chat.proof;
  const looks = useSignal(0);
  looks.value;
  // The server computes the hash behind what is appended: it may have none yet. What is read raises no update.
  useEffect(() => {
    if (proof?.state === "complete") chat.prove();
    if (!chat.head || proof?.state === "proven") return undefined;
    const again = setInterval(() => {
      looks.value += 1;
      if (chat.proof?.state === "complete" && looks.value % LOOKS_PER_PROOF === 0) chat.prove();
    }, LOOK_MS);
    return () => clearInterval(again);
  }, [chat.head, proof?.state]);
  const [state, text, sequence] = told(proof);
  return (
    <div
      role="status"
      aria-label={s.completeness}
      data-state={state}
      data-sequence={sequence}
      class={c.status}
    >
      <Icon name={state === "differs" ? "warning" : "shield"} size={18} />
      {text}
    </div>
  );
}

function told(proof: Chat["proof"]): readonly [string, string, number] {
  if (!proof) return ["behind", s.notRead, 0];
  switch (proof.state) {
    case "proven":
      return ["proven", s.proven(proof.to, clockTime(proof.at)), proof.to];
    case "complete":
      return ["complete", s.complete(proof.to), proof.to];
    case "behind":
      return ["behind", s.behind(proof.to, proof.head), proof.to];
    case "differs":
      return ["differs", s.differs, proof.to];
  }
}
