/** What is said of the connection, and of what this browser keeps. */

import { useSignal } from "@preact/signals";
import { Button } from "parley-ui/controls.js";
import { Icon } from "parley-ui/Icon.js";
import { useEffect } from "preact/hooks";
import { isOld, useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import c from "./Connection.module.css";

/** A page that was just opened is connecting, not offline. */
const CONNECTING_MS = 4_000;

export function ConnectionStatus() {
  const { client, live, chats } = useApp();
  live.watch("connection");
  const isNew = useSignal(true);
  useEffect(() => {
    const timer = setTimeout(() => {
      isNew.value = false;
    }, CONNECTING_MS);
    const off = client.on("connection", () => {
      if (client.isOnline) isNew.value = false;
    });
    return () => {
      clearTimeout(timer);
      off();
    };
  }, [client]);
  const [state, text] = stateOf(client.isOnline, isNew.value && navigator.onLine, chats.catchingUp.value);
  return (
    <div role="status" aria-label={s.connection} data-state={state} class={c.status}>
      {state === "offline" && <Icon name="cloudOff" size={18} />}
      <span>{text}</span>
      {state === "catching_up" && chats.catchingUp.value && (
        <progress aria-hidden="true" max={chats.catchingUp.value.of} value={chats.catchingUp.value.done} />
      )}
    </div>
  );
}

function stateOf(
  isOnline: boolean,
  isNew: boolean,
  catchingUp: { done: number; of: number } | null,
): readonly [string, string] {
  if (!isOnline) return isNew ? ["connecting", s.connecting] : ["offline", s.offline];
  if (catchingUp) return ["catching_up", s.catchingUp(catchingUp.done, catchingUp.of)];
  return ["online", ""];
}

/** A newer page is there: the person decides when. */
export function Update() {
  if (!isOld.value) return null;
  return (
    <div class={c.update}>
      <span>{s.newVersion}</span>
      <Button look="primary" onClick={() => location.reload()}>
        {s.reloadToUpdate}
      </Button>
    </div>
  );
}

export function StorageAlert() {
  const { client, live } = useApp();
  live.watch("storage");
  if (client.storage === "indexeddb") return null;
  return (
    <div role="alert" aria-label={s.storage} class={c.alert}>
      <Icon name="warning" size={18} />
      <span>{client.storageError ? s.storageTrouble : s.storageMemory}</span>
    </div>
  );
}
