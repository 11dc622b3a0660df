/** One person: sessions, devices, chats and how far they are, and what operators did. */

import { useSignal } from "@preact/signals";
import type {
  AuditRecord,
  ConnectionInfo,
  PersonChat,
  PersonInfo,
  PushDeviceInfo,
  UserSession,
} from "parley-chat";
import { wholeTime } from "parley-ui/time.js";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { nameOf, useNames } from "../app/names.js";
import { hrefOf } from "../app/route.js";
import { Danger } from "../parts/Danger.js";
import { Page } from "../parts/Page.js";
import { Act, Facts, Id, Name, quiet, Section, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";
import { Erasure } from "./Erasure.js";
import { personName, Standing } from "./People.js";
import { type PersonAction, PersonButtons, PersonDialog } from "./PersonActions.js";

export function OnePerson({ userId }: { userId: string }) {
  const feed = useFeed(() => api("GET /v1/admin/users/{user_id}", { path: { user_id: userId } }), [userId]);
  const asked = useSignal<PersonAction | null>(null);
  const isErasing = useSignal(false);
  const person = feed.value.value;
  return (
    <Page title={person ? personName(person) : s.person} from={{ title: s.people, href: hrefOf("people") }}>
      <Shown feed={feed}>
        {(one) => (
          <>
            <PersonButtons
              person={one}
              onAsk={(action) => {
                asked.value = action;
              }}
            />
            {(isErasing.value || one.state === "deleted") && <Erasure id={userId} />}
            <About person={one} />
            <Sessions person={one} />
            <Connections userId={userId} />
            <Chats person={one} />
            <PushDevices devices={one.push_devices} />
          </>
        )}
      </Shown>
      <Done userId={userId} />
      {asked.value && person && (
        <PersonDialog
          action={asked.value}
          person={person}
          onErase={() => {
            isErasing.value = true;
          }}
          onClose={() => {
            asked.value = null;
          }}
        />
      )}
    </Page>
  );
}

function About({ person }: { person: PersonInfo }) {
  return (
    <Facts
      of={[
        [s.state, <Standing key="state" of={person} />],
        [s.username, person.username ? `@${person.username}` : s.unknown],
        [s.id, <Id key="id" of={person.user_id} />],
        [s.lastSeen, <Time key="seen" at={person.last_seen} />],
        [s.created, <Time key="created" at={person.created_at} />],
        ...(person.external_id
          ? [[s.externalId, <Name key="external" of={person.external_id} />] as const]
          : []),
        ...(person.about ? [[s.about, <Name key="about" of={person.about} />] as const] : []),
      ]}
    />
  );
}

const SESSIONS: readonly Column<UserSession>[] = [
  {
    name: s.device,
    cell: (one) => (
      <>
        <Name of={one.device_name || one.device_id} />
        <Id of={one.session_id} />
      </>
    ),
  },
  { name: s.lastUsed, cell: ({ last_used_at }) => <Time at={last_used_at} /> },
  { name: s.created, cell: ({ created_at }) => <Time at={created_at} /> },
  { name: s.ends, cell: ({ expires_at }) => <Time at={expires_at} /> },
];

function Sessions({ person }: { person: PersonInfo }) {
  const revoked = useSignal<UserSession | null>(null);
  const close = () => {
    revoked.value = null;
  };
  const shown: readonly Column<UserSession>[] = [
    ...SESSIONS,
    {
      name: s.actions,
      isUnnamed: true,
      cell: (session) => (
        <Act
          onClick={() => {
            revoked.value = session;
          }}
        >
          {s.revoke}
        </Act>
      ),
    },
  ];
  return (
    <Section title={s.sessions}>
      {person.sessions.length === 0 ? (
        <p class={quiet}>{s.noSessions}</p>
      ) : (
        <Table name={s.sessions} columns={shown} rows={person.sessions} keyOf={(one) => one.session_id} />
      )}
      {revoked.value && (
        <Danger
          action={s.revoke}
          onDo={() =>
            api("DELETE /v1/admin/users/{user_id}/sessions/{session_id}", {
              path: { user_id: person.user_id, session_id: revoked.value?.session_id ?? "" },
            })
          }
          onClose={close}
        >
          <p>{s.revokeHint(revoked.value.device_name || revoked.value.device_id)}</p>
        </Danger>
      )}
    </Section>
  );
}

const CHATS: readonly Column<PersonChat>[] = [
  {
    name: s.chat,
    cell: (one) => <Name of={one.title || one.chat_id} href={hrefOf("chat", one.chat_id)} />,
  },
  { name: s.type, cell: ({ type }) => s.chatTypes[type] },
  { name: s.role, cell: ({ role }) => (role ? s.rolesOf[role] : s.left) },
  { name: s.head, cell: ({ head }) => `#${number(head)}`, isNumber: true },
  { name: s.delivered, cell: ({ delivered_up_to }) => `#${number(delivered_up_to)}`, isNumber: true },
  { name: s.read, cell: ({ read_up_to }) => `#${number(read_up_to)}`, isNumber: true },
];

function Chats({ person }: { person: PersonInfo }) {
  return (
    <Section title={s.chatsOf(person.chats.length, person.chat_count)}>
      {person.chats.length === 0 ? (
        <p class={quiet}>{s.inNoChat}</p>
      ) : (
        <Table name={s.chats} columns={CHATS} rows={person.chats} keyOf={({ chat_id }) => chat_id} />
      )}
    </Section>
  );
}

const PUSH: readonly Column<PushDeviceInfo>[] = [
  { name: s.device, cell: ({ device_id }) => <Name of={device_id} /> },
  { name: s.provider, cell: ({ provider }) => provider },
  { name: s.previews, cell: ({ preview }) => (preview ? s.yes : s.no) },
  { name: s.created, cell: ({ created_at }) => <Time at={created_at} /> },
];

const CONNECTIONS: readonly Column<ConnectionInfo>[] = [
  { name: s.device, cell: ({ device_id }) => <Name of={device_id} /> },
  { name: s.address, cell: ({ address }) => <code>{address}</code> },
  { name: s.heardFrom, cell: ({ heard_from_at }) => <Time at={heard_from_at} /> },
  { name: s.waitingBytes, cell: ({ waiting_bytes }) => s.bytes(waiting_bytes, 0), isNumber: true },
];

function Connections({ userId }: { userId: string }) {
  const feed = useFeed(() => api("GET /v1/admin/connections", { query: { user_id: userId } }), [userId]);
  const closed = useSignal<string | null>(null);
  const shown: readonly Column<ConnectionInfo>[] = [
    ...CONNECTIONS,
    {
      name: s.actions,
      isUnnamed: true,
      cell: ({ connection_id }) => (
        <Act
          onClick={() => {
            closed.value = connection_id;
          }}
        >
          {s.closeConnection}
        </Act>
      ),
    },
  ];
  return (
    <Section title={s.openConnections}>
      <Shown feed={feed}>
        {({ connections }) =>
          connections.length === 0 ? (
            <p class={quiet}>{s.noConnections}</p>
          ) : (
            <Table
              name={s.openConnections}
              columns={shown}
              rows={connections}
              keyOf={({ connection_id }) => connection_id}
            />
          )
        }
      </Shown>
      {closed.value !== null && (
        <Danger
          action={s.closeConnection}
          onDo={() =>
            api("DELETE /v1/admin/connections/{connection_id}", {
              path: { connection_id: closed.value ?? "" },
            })
          }
          onClose={() => {
            closed.value = null;
          }}
        >
          <p>{s.closeConnectionHint}</p>
        </Danger>
      )}
    </Section>
  );
}

function PushDevices({ devices }: { devices: readonly PushDeviceInfo[] }) {
  return (
    <Section title={s.pushDevices}>
      {devices.length === 0 ? (
        <p class={quiet}>{s.noPushDevices}</p>
      ) : (
        <Table name={s.pushDevices} columns={PUSH} rows={devices} keyOf={({ device_id }) => device_id} />
      )}
    </Section>
  );
}

const RECORDS = 10;
const AUDIT: readonly Column<AuditRecord>[] = [
  { name: s.when, cell: ({ at }) => <time dateTime={at}>{wholeTime(Date.parse(at))}</time> },
  { name: s.actor, cell: ({ actor }) => <Name of={nameOf(actor)} /> },
  { name: s.action, cell: ({ action }) => <code>{action}</code> },
  { name: s.detail, cell: ({ detail }) => detail && <Name of={detail} /> },
  { name: s.outcome, cell: ({ outcome }) => outcome },
];

function Done({ userId }: { userId: string }) {
  const feed = useFeed(
    () => api("GET /v1/admin/audit", { query: { target: userId, limit: RECORDS } }),
    [userId],
  );
  useNames(
    feed.value.value?.records.map(({ actor }) => actor).filter((actor) => actor.startsWith("user_")) ?? [],
  );
  return (
    <Section title={s.done} actions={<a href={hrefOf("audit", "", { target: userId })}>{s.wholeAudit}</a>}>
      <Shown feed={feed}>
        {({ records }) =>
          records.length === 0 ? (
            <p class={quiet}>{s.nothingDone}</p>
          ) : (
            <Table name={s.done} columns={AUDIT} rows={records} keyOf={({ audit_id }) => audit_id} />
          )
        }
      </Shown>
    </Section>
  );
}
