/** Tokens of programs: what each may do, when it was last used; made, shown once, revoked. */

import { useSignal } from "@preact/signals";
import type { ApiTokenInfo, Scope } from "parley-chat";
import { Field } from "parley-ui/controls.js";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { nameOf, useNames } from "../app/names.js";
import { hrefOf } from "../app/route.js";
import { Choices } from "../parts/Choices.js";
import { Danger } from "../parts/Danger.js";
import { Once } from "../parts/Once.js";
import { Page } from "../parts/Page.js";
import { Act, Id, Name, row, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { s } from "../strings.en.js";

const w = s.ofPrograms;
const SCOPES: readonly Scope[] = ["read", "send", "admin"];
const SCOPE_LOOKS = { read: "plain", send: "accent", admin: "warn" } as const;
const NAME_CHARS_MAX = 64;

export default function Programs() {
  const feed = useFeed(() => api("GET /v1/admin/tokens"), []);
  const isMaking = useSignal(false);
  const revoked = useSignal<ApiTokenInfo | null>(null);
  const secret = useSignal("");
  useNames(
    (feed.value.value?.tokens ?? []).flatMap(({ user_id, created_by }) => [user_id, created_by ?? ""]),
  );
  const columns: readonly Column<ApiTokenInfo>[] = [
    ...COLUMNS,
    {
      name: w.actions,
      isUnnamed: true,
      cell: (token) => (
        <Act
          onClick={() => {
            revoked.value = token;
          }}
        >
          {w.revoke}
        </Act>
      ),
    },
  ];
  return (
    <Page
      title={s.programs}
      actions={
        <Act
          look="primary"
          onClick={() => {
            isMaking.value = true;
          }}
        >
          {w.make}
        </Act>
      }
    >
      <Shown feed={feed} empty={{ when: ({ tokens }) => tokens.length === 0, say: w.none }}>
        {({ tokens }) => (
          <Table name={w.tokens} columns={columns} rows={tokens} keyOf={(token) => token.token_id} />
        )}
      </Shown>
      {isMaking.value && (
        <MakeToken
          onMade={(made) => {
            secret.value = made;
            void feed.reload();
          }}
          onClose={() => {
            isMaking.value = false;
          }}
        />
      )}
      {revoked.value && (
        <Revoke
          token={revoked.value}
          onDone={() => void feed.reload()}
          onClose={() => {
            revoked.value = null;
          }}
        />
      )}
      {secret.value && !isMaking.value && (
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

const COLUMNS: readonly Column<ApiTokenInfo>[] = [
  { name: w.name, cell: ({ name }) => <Name of={name} /> },
  { name: w.account, cell: ({ user_id }) => <Name of={nameOf(user_id)} href={hrefOf("person", user_id)} /> },
  {
    name: w.scopes,
    cell: ({ scopes }) => (
      <span class={row}>
        {SCOPES.filter((scope) => scopes.includes(scope)).map((scope) => (
          <Tag key={scope} look={SCOPE_LOOKS[scope]}>
            {scope}
          </Tag>
        ))}
      </span>
    ),
  },
  {
    name: w.chat,
    cell: ({ chat_id }) => (chat_id ? <Id of={chat_id} href={hrefOf("chat", chat_id)} /> : w.anyChat),
  },
  { name: w.madeBy, cell: ({ created_by }) => <Name of={created_by ? nameOf(created_by) : s.unknown} /> },
  { name: w.lastUsed, cell: ({ last_used_at }) => <Time at={last_used_at} /> },
  { name: w.ends, cell: ({ expires_at }) => <Time at={expires_at} /> },
];

function Revoke({
  token,
  onDone,
  onClose,
}: {
  token: ApiTokenInfo;
  onDone: () => void;
  onClose: () => void;
}) {
  return (
    <Danger
      action={w.revoke}
      onDo={async () => {
        await api("DELETE /v1/admin/tokens/{token_id}", { path: { token_id: token.token_id } });
        onDone();
      }}
      onClose={onClose}
    >
      <p>
        <Name of={w.revokeHint(token.name)} />
      </p>
    </Danger>
  );
}

function MakeToken({ onMade, onClose }: { onMade: (secret: string) => void; onClose: () => void }) {
  const [name, account, chatId, days] = [useSignal(""), useSignal(""), useSignal(""), useSignal("")];
  const scopes = useSignal<ReadonlySet<string>>(new Set(["read"]));
  const isNumber = /^\d*$/.test(days.value.trim());
  return (
    <Danger
      title={w.make}
      action={w.make}
      isHarmless
      isDisabled={!name.value.trim() || scopes.value.size === 0 || !isNumber}
      onDo={async () => {
        const [userId, only, until] = [account.value.trim(), chatId.value.trim(), days.value.trim()];
        const body = {
          name: name.value.trim(),
          scopes: SCOPES.filter((scope) => scopes.value.has(scope)),
          ...(userId && { user_id: userId }),
          ...(only && { chat_id: only }),
          ...(until && { expires_in_days: Number(until) }),
        };
        onMade((await api("POST /v1/admin/tokens", { body })).token);
      }}
      onClose={onClose}
    >
      <p>{w.makeHint}</p>
      <Field label={w.name} value={name} hint={w.nameHint} maxLength={NAME_CHARS_MAX} required autoFocus />
      <Choices
        label={w.scopes}
        areLong
        all={SCOPES.map((scope) => [scope, w.scopeHints[scope]])}
        chosen={scopes}
      />
      <Field label={w.account} value={account} hint={w.accountHint} />
      <Field label={w.chatId} value={chatId} hint={w.chatIdHint} />
      <Field label={w.days} value={days} hint={w.daysHint} isInvalid={!isNumber} />
    </Danger>
  );
}
