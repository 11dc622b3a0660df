/** What operators do about a chat. */

import { useSignal } from "@preact/signals";
import type { ChatCheck, ChatOverview, Fanout } from "parley-chat";
import { Button, Field, Select, Switch } from "parley-ui/controls.js";
import { api } from "../app/api.js";
import { told } from "../app/words.js";
import { Danger } from "../parts/Danger.js";
import { Act, Dangerous, row } from "../parts/parts.js";
import { number, s } from "../strings.en.js";
import { Erasure } from "./Erasure.js";
import c from "./OneChat.module.css";
import { Recover } from "./Recover.js";

type Asked = "recover" | "rename" | "retention" | "fanout" | "delete";

export function ChatActions({ chat }: { chat: ChatOverview }) {
  const asked = useSignal<Asked | null>(null);
  const checked = useSignal<ChatCheck | string | null>(null);
  const isDeleted = useSignal(false);
  const ask = (action: Asked) => () => {
    asked.value = action;
  };
  const close = () => {
    asked.value = null;
  };
  const check = async () => {
    checked.value = s.checking;
    try {
      checked.value = await api("GET /v1/admin/chats/{chat_id}/check", { path: { chat_id: chat.chat_id } });
    } catch (error) {
      checked.value = told(error);
    }
  };
  return (
    <>
      <div class={row}>
        <Button look="primary" onClick={() => void check()}>
          {s.check}
        </Button>
        <Act onClick={ask("recover")}>{s.recover}</Act>
        {chat.type === "group" && <Act onClick={ask("rename")}>{s.rename}</Act>}
        <Act onClick={ask("retention")}>{s.changeRetention}</Act>
        <Act onClick={ask("fanout")}>{s.changeFanout}</Act>
        <Dangerous>
          <Act onClick={ask("delete")}>{s.deleteChat}</Act>
        </Dangerous>
      </div>
      <Checked found={checked.value} />
      {(isDeleted.value || chat.member_count === 0) && <Erasure id={chat.chat_id} />}
      {asked.value === "recover" && <Recover chatId={chat.chat_id} onClose={close} />}
      {asked.value === "rename" && <Rename chat={chat} onClose={close} />}
      {asked.value === "retention" && <Retention chat={chat} onClose={close} />}
      {asked.value === "fanout" && <ChooseFanout chat={chat} onClose={close} />}
      {asked.value === "delete" && (
        <Danger
          action={s.deleteChat}
          needsReason
          typed={{ label: s.chatId, text: chat.chat_id }}
          onDo={async (reason) => {
            await api("DELETE /v1/admin/chats/{chat_id}", {
              path: { chat_id: chat.chat_id },
              body: { reason },
            });
            isDeleted.value = true;
          }}
          onClose={close}
        >
          <p>{chat.type === "group" ? s.deleteGroupHint : s.deleteDirectHint}</p>
        </Danger>
      )}
    </>
  );
}

function Checked({ found }: { found: ChatCheck | string | null }) {
  const isReport = found !== null && typeof found !== "string";
  return (
    <div
      role="status"
      aria-label={s.check}
      class={`${c.check} ${isReport ? (found.ok ? c.fine : c.broken) : ""}`}
    >
      {typeof found === "string" && found}
      {isReport && (
        <>
          <strong>
            {found.ok ? s.checkOk : s.checkBroken(found.breaches.length + found.breaches_not_listed)}
          </strong>
          <span>{s.checked(found.entries, found.voids, found.open_allocations)}</span>
          {found.breaches.length > 0 && (
            <ul class={c.breaches}>
              {found.breaches.map((one) => (
                <li key={`${one.invariant} ${one.sequence} ${one.says}`}>
                  <strong>
                    {one.invariant}
                    {one.sequence !== null && ` #${number(one.sequence)}`}
                  </strong>
                  <div>{one.says}</div>
                  <div>{one.remedy}</div>
                </li>
              ))}
            </ul>
          )}
        </>
      )}
    </div>
  );
}

function Rename({ chat, onClose }: { chat: ChatOverview; onClose: () => void }) {
  const title = useSignal(chat.title ?? "");
  return (
    <Danger
      action={s.rename}
      isHarmless
      isDisabled={!title.value.trim() || title.value.trim() === chat.title}
      onDo={() =>
        api("PATCH /v1/admin/chats/{chat_id}", {
          path: { chat_id: chat.chat_id },
          body: { title: title.value.trim() },
        })
      }
      onClose={onClose}
    >
      <p>{s.renameHint}</p>
      <Field label={s.title} value={title} maxLength={200} required />
    </Danger>
  );
}

function Retention({ chat, onClose }: { chat: ChatOverview; onClose: () => void }) {
  const days = useSignal(chat.retention === null ? "" : String(chat.retention));
  const isHeld = useSignal(chat.is_held);
  const isNumber = /^\d{0,5}$/.test(days.value.trim());
  return (
    <Danger
      action={s.changeRetention}
      isHarmless
      isDisabled={!isNumber}
      onDo={() =>
        api("PUT /v1/admin/chats/{chat_id}/retention", {
          path: { chat_id: chat.chat_id },
          body: { days: days.value.trim() ? Number(days.value) : null, is_held: isHeld.value },
        })
      }
      onClose={onClose}
    >
      <Field
        label={s.retentionDays}
        value={days}
        hint={s.retentionHint}
        isInvalid={!isNumber}
        autoComplete="off"
      />
      <Switch
        label={s.hold}
        isOn={isHeld.value}
        onChange={(isOn) => {
          isHeld.value = isOn;
        }}
      />
    </Danger>
  );
}

function ChooseFanout({ chat, onClose }: { chat: ChatOverview; onClose: () => void }) {
  const chosen = useSignal(chat.chosen ?? "");
  return (
    <Danger
      action={s.changeFanout}
      isHarmless
      isDisabled={chosen.value === (chat.chosen ?? "")}
      onDo={() =>
        api("PATCH /v1/admin/chats/{chat_id}", {
          path: { chat_id: chat.chat_id },
          body: { fanout: chosen.value ? (chosen.value as Fanout) : null },
        })
      }
      onClose={onClose}
    >
      <p>{s.fanoutHint}</p>
      <Select
        label={s.fanout}
        value={chosen.value}
        options={s.fanoutChoices}
        onChange={(value) => {
          chosen.value = value as Fanout | "";
        }}
      />
    </Danger>
  );
}
