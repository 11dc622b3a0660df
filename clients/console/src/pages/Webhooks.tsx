/** Other programs that are told what happens: what each is owed, and why it does not answer. */

import { useSignal } from "@preact/signals";
import type { EventName, WebhookInfo } from "parley-chat";
import { Field } from "parley-ui/controls.js";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { hrefOf } from "../app/route.js";
import { told } from "../app/words.js";
import { Choices } from "../parts/Choices.js";
import { Danger } from "../parts/Danger.js";
import { Once } from "../parts/Once.js";
import { Page } from "../parts/Page.js";
import { Act, Name, quiet, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { s } from "../strings.en.js";
import c from "./Webhooks.module.css";

const w = s.ofWebhooks;
const EVENTS: readonly EventName[] = [
  "message.created",
  "message.edited",
  "message.deleted",
  "message.reacted",
  "member.changed",
  "chat.changed",
  "receipt.delivered",
  "receipt.read",
  "account.created",
  "account.enabled",
  "account.disabled",
  "account.deleted",
];
const STATE_LOOKS = { working: "good", failing: "warn", paused: "bad" } as const;

type Wanted =
  | { readonly what: "add" }
  | { readonly what: "pause" | "rotate" | "remove"; readonly hook: WebhookInfo };

export default function Webhooks() {
  const feed = useFeed(() => api("GET /v1/admin/webhooks"), []);
  const wanted = useSignal<Wanted | null>(null);
  const secret = useSignal("");
  const columns: readonly Column<WebhookInfo>[] = [
    ...COLUMNS,
    {
      name: w.actions,
      isUnnamed: true,
      cell: (hook) => (
        <Actions
          of={hook}
          onWant={(what) => {
            wanted.value = { what, hook };
          }}
          onDone={() => void feed.reload()}
        />
      ),
    },
  ];
  const close = () => {
    wanted.value = null;
  };
  const finish = () => {
    void feed.reload();
  };
  return (
    <Page
      title={s.webhooks}
      actions={
        <Act
          look="primary"
          onClick={() => {
            wanted.value = { what: "add" };
          }}
        >
          {w.add}
        </Act>
      }
    >
      <Shown feed={feed} empty={{ when: ({ webhooks }) => webhooks.length === 0, say: w.none }}>
        {({ webhooks }) => (
          <Table name={s.webhooks} columns={columns} rows={webhooks} keyOf={(hook) => hook.webhook_id} />
        )}
      </Shown>
      {wanted.value?.what === "add" && (
        <AddWebhook
          onAdded={(made) => {
            secret.value = made;
            finish();
          }}
          onClose={close}
        />
      )}
      {wanted.value && wanted.value.what !== "add" && (
        <Order
          {...wanted.value}
          onSecret={(made) => {
            secret.value = made;
          }}
          onDone={finish}
          onClose={close}
        />
      )}
      {secret.value && !wanted.value && (
        <Once
          title={w.secret}
          hint={w.secretHint}
          secret={secret.value}
          onClose={() => {
            secret.value = "";
          }}
        />
      )}
    </Page>
  );
}

const COLUMNS: readonly Column<WebhookInfo>[] = [
  { name: w.url, cell: ({ url }) => <Name of={url} /> },
  {
    name: w.events,
    cell: ({ events, chat_id }) => (
      <>
        {events.join(", ")}
        <div class={quiet}>
          {chat_id ? <Name of={chat_id} href={hrefOf("chat", chat_id)} /> : w.everyChat}
        </div>
      </>
    ),
  },
  {
    name: w.state,
    cell: (hook) =>
      hook.paused ? (
        <Tag look="warn">{w.pausedByOperator}</Tag>
      ) : (
        <Tag look={STATE_LOOKS[hook.state]}>{w.states[hook.state]}</Tag>
      ),
  },
  { name: w.waiting, isNumber: true, cell: (hook) => w.waitingIn(hook.waiting, hook.waiting_chats) },
  { name: w.lastSuccess, cell: ({ last_success_at }) => <Time at={last_success_at} /> },
  {
    name: w.lastError,
    cell: (hook) =>
      hook.last_error && (
        <>
          <Name of={`${hook.last_error}: ${hook.last_error_detail ?? ""}`} />
          <Time at={hook.failing_since} />
        </>
      ),
  },
];

type ActionsProps = {
  of: WebhookInfo;
  onWant: (what: "pause" | "rotate" | "remove") => void;
  onDone: () => void;
};

function Actions({ of: hook, onWant, onDone }: ActionsProps) {
  const outcome = useSignal("");
  const isTesting = useSignal(false);
  const test = async () => {
    isTesting.value = true;
    outcome.value = "";
    try {
      const path = { webhook_id: hook.webhook_id };
      const { arrived, error, error_detail } = await api("POST /v1/admin/webhooks/{webhook_id}/test", {
        path,
      });
      outcome.value = arrived ? w.arrived : w.notArrived(`${error}: ${error_detail}`);
    } catch (error) {
      outcome.value = told(error);
    }
    isTesting.value = false;
    onDone();
  };
  return (
    <>
      <div class={c.orders}>
        <Act onClick={() => void test()} disabled={isTesting.value}>
          {isTesting.value ? w.testing : w.test}
        </Act>
        <Act onClick={() => onWant("pause")}>{hook.paused ? w.resume : w.pause}</Act>
        <Act onClick={() => onWant("rotate")}>{w.rotate}</Act>
        <Act onClick={() => onWant("remove")}>{w.remove}</Act>
      </div>
      <div role="status" aria-label={w.test} class={quiet}>
        {outcome.value}
      </div>
    </>
  );
}

type OrderProps = {
  what: "pause" | "rotate" | "remove";
  hook: WebhookInfo;
  onSecret: (secret: string) => void;
  onDone: () => void;
  onClose: () => void;
};

function Order({ what, hook, onSecret, onDone, onClose }: OrderProps) {
  const path = { webhook_id: hook.webhook_id };
  const orders = {
    pause: {
      action: hook.paused ? w.resume : w.pause,
      hint: hook.paused ? w.resumeHint : w.pauseHint,
      run: () => api("PATCH /v1/admin/webhooks/{webhook_id}", { path, body: { paused: !hook.paused } }),
    },
    rotate: {
      action: w.rotate,
      hint: w.rotateHint,
      run: async () => onSecret((await api("POST /v1/admin/webhooks/{webhook_id}/secret", { path })).secret),
    },
    remove: {
      action: w.remove,
      hint: w.removeHint,
      run: () => api("DELETE /v1/admin/webhooks/{webhook_id}", { path }),
    },
  };
  const { action, hint, run } = orders[what];
  return (
    <Danger
      action={action}
      isHarmless={what === "pause"}
      onDo={async () => {
        await run();
        onDone();
      }}
      onClose={onClose}
    >
      <p>
        <Name of={hook.url} />
      </p>
      <p>{hint}</p>
      <p class={quiet}>
        {w.waiting}: {w.waitingIn(hook.waiting, hook.waiting_chats)}
      </p>
    </Danger>
  );
}

function AddWebhook({ onAdded, onClose }: { onAdded: (secret: string) => void; onClose: () => void }) {
  const url = useSignal("");
  const chatId = useSignal("");
  const events = useSignal<ReadonlySet<string>>(new Set(["message.created"]));
  return (
    <Danger
      title={w.add}
      action={w.add}
      isHarmless
      isWide
      isDisabled={!url.value.trim() || events.value.size === 0}
      onDo={async () => {
        const chosen = EVENTS.filter((event) => events.value.has(event));
        const only = chatId.value.trim();
        const body = { url: url.value.trim(), events: chosen, ...(only && { chat_id: only }) };
        onAdded((await api("POST /v1/admin/webhooks", { body })).secret);
      }}
      onClose={onClose}
    >
      <p>{w.addHint}</p>
      <Field label={w.url} value={url} hint={w.urlHint} required autoFocus />
      <Choices label={w.events} all={EVENTS.map((event) => [event, event])} chosen={events} />
      <Field label={w.chatId} value={chatId} hint={w.chatIdHint} />
    </Danger>
  );
}
