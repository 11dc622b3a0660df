/** Links by which people register: who came by each, and until when it works. */

import { useSignal } from "@preact/signals";
import type { LinkInfo } from "parley-chat";
import { Field } from "parley-ui/controls.js";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { nameOf, useNames } from "../app/names.js";
import { hrefOf } from "../app/route.js";
import { Danger } from "../parts/Danger.js";
import { Once } from "../parts/Once.js";
import { Page } from "../parts/Page.js";
import { Act, Name, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, More, Table } from "../parts/Table.js";
import { s } from "../strings.en.js";
import { usePages } from "./pagesOf.js";

const w = s.ofLinks;
const SECONDS_PER_DAY = 86_400;
const NOTE_CHARS_MAX = 200;
const STATE_LOOKS = { open: "good", used: "plain", expired: "plain", revoked: "warn" } as const;
const DAYS = "7";

export default function Links() {
  const pages = usePages([], async (before) => {
    const { invites, next } = await api("GET /v1/admin/invites", { query: before ? { before } : {} });
    return { items: invites, next };
  });
  const feed = useFeed(pages.load, [pages]);
  const isMaking = useSignal(false);
  const revoked = useSignal<LinkInfo | null>(null);
  const secret = useSignal("");
  useNames((feed.value.value?.items ?? []).flatMap((link) => [link.created_by, ...link.used_by]));
  const columns: readonly Column<LinkInfo>[] = [
    ...COLUMNS,
    {
      name: w.actions,
      isUnnamed: true,
      cell: (link) =>
        link.state === "open" && (
          <Act
            onClick={() => {
              revoked.value = link;
            }}
          >
            {w.revoke}
          </Act>
        ),
    },
  ];
  return (
    <Page
      title={s.links}
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
      <Shown feed={feed} empty={{ when: ({ items }) => items.length === 0, say: w.none }}>
        {({ items, next }) => (
          <>
            <Table name={w.invites} columns={columns} rows={items} keyOf={(link) => link.link_id} />
            {next && <More onMore={() => void pages.more(feed)} />}
          </>
        )}
      </Shown>
      {isMaking.value && (
        <MakeLink
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
          link={revoked.value}
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

const COLUMNS: readonly Column<LinkInfo>[] = [
  { name: w.link, cell: ({ note }) => <Name of={note || w.noNote} /> },
  {
    name: w.state,
    cell: ({ state }) => {
      const known = state as keyof typeof w.states;
      return <Tag look={STATE_LOOKS[known] ?? "plain"}>{w.states[known] ?? state}</Tag>;
    },
  },
  { name: w.used, isNumber: true, cell: (link) => w.usedOf(link.used_by.length, link.uses) },
  {
    name: w.who,
    cell: ({ used_by }) =>
      used_by.map((userId) => <Name key={userId} of={nameOf(userId)} href={hrefOf("person", userId)} />),
  },
  { name: w.until, cell: ({ expires_at }) => <Time at={expires_at} /> },
  { name: w.madeBy, cell: ({ created_by }) => <Name of={nameOf(created_by)} /> },
];

function Revoke({ link, onDone, onClose }: { link: LinkInfo; onDone: () => void; onClose: () => void }) {
  return (
    <Danger
      action={w.revoke}
      onDo={async () => {
        await api("DELETE /v1/admin/invites/{link_id}", { path: { link_id: link.link_id } });
        onDone();
      }}
      onClose={onClose}
    >
      {link.note && (
        <p>
          <Name of={link.note} />
        </p>
      )}
      <p>{w.revokeHint}</p>
    </Danger>
  );
}

function MakeLink({ onMade, onClose }: { onMade: (url: string) => void; onClose: () => void }) {
  const [note, uses, days] = [useSignal(""), useSignal("1"), useSignal(DAYS)];
  const areNumbers = [uses, days].every(({ value }) => /^[1-9]\d*$/.test(value.trim()));
  return (
    <Danger
      title={w.make}
      action={w.make}
      isHarmless
      isDisabled={!areNumbers}
      onDo={async () => {
        const body = {
          note: note.value.trim(),
          uses: Number(uses.value),
          expires_in_seconds: Number(days.value) * SECONDS_PER_DAY,
        };
        onMade((await api("POST /v1/admin/invites", { body })).url);
      }}
      onClose={onClose}
    >
      <p>{w.makeHint}</p>
      <Field label={w.note} value={note} hint={w.noteHint} maxLength={NOTE_CHARS_MAX} autoFocus />
      <Field label={w.uses} value={uses} required />
      <Field label={w.days} value={days} required />
    </Danger>
  );
}
