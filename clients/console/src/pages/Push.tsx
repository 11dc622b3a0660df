/** Who brings rings to phones and browsers, what became of them, and the devices of a person that ring. */

import { useSignal } from "@preact/signals";
import type { PersonInfo, PushDeviceInfo, PushProviderInfo } from "parley-chat";
import { Button, Field } from "parley-ui/controls.js";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { hrefOf, place, refine } from "../app/route.js";
import { Danger } from "../parts/Danger.js";
import { Page } from "../parts/Page.js";
import { Act, Filters, Name, quiet, row, Section, Tag, Time } from "../parts/parts.js";
import { Empty, Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";

const w = s.ofPush;
const SENT = "sent";

export default function Push() {
  const feed = useFeed(() => api("GET /v1/admin/push"), []);
  return (
    <Page title={s.push}>
      <Shown feed={feed}>
        {({ providers }) => (
          <>
            {providers.every(({ ready }) => !ready) && <Empty>{w.none}</Empty>}
            <Table name={s.push} columns={COLUMNS} rows={providers} keyOf={({ provider }) => provider} />
            <p class={quiet}>{w.sinceStart}</p>
          </>
        )}
      </Shown>
      <Devices />
    </Page>
  );
}

const nameOf = (provider: string) => w.names[provider as keyof typeof w.names] ?? provider;

const COLUMNS: readonly Column<PushProviderInfo>[] = [
  { name: w.provider, cell: ({ provider }) => nameOf(provider) },
  {
    name: w.state,
    cell: ({ ready }) => <Tag look={ready ? "good" : "plain"}>{ready ? w.isReady : w.isOff}</Tag>,
  },
  { name: w.sent, isNumber: true, cell: ({ outcomes }) => number(outcomes[SENT] ?? 0) },
  {
    name: w.lastOutcomes,
    cell: ({ outcomes }) => (
      <span class={row}>
        {Object.entries(outcomes).map(([outcome, count]) => (
          <Tag key={outcome} look={outcome === SENT ? "good" : "warn"}>
            {`${outcome} ${number(count)}`}
          </Tag>
        ))}
      </span>
    ),
  },
];

function Devices() {
  const asked = place.value.query.get("person") ?? "";
  const who = useSignal(asked);
  return (
    <Section title={w.devices}>
      <p class={quiet}>{w.devicesHint}</p>
      <Filters onSubmit={() => refine(hrefOf("push", "", { person: who.value.trim() }))}>
        <Field label={w.person} value={who} type="search" />
        <Button type="submit">{w.find}</Button>
      </Filters>
      {asked && <DevicesOf key={asked} asked={asked} />}
    </Section>
  );
}

function DevicesOf({ asked }: { asked: string }) {
  const feed = useFeed(() => find(asked), [asked]);
  const silenced = useSignal<PushDeviceInfo | null>(null);
  const columns: readonly Column<PushDeviceInfo>[] = [
    ...DEVICE_COLUMNS,
    {
      name: w.actions,
      isUnnamed: true,
      cell: (device) => (
        <Act
          onClick={() => {
            silenced.value = device;
          }}
        >
          {w.silence}
        </Act>
      ),
    },
  ];
  return (
    <Shown feed={feed} empty={{ when: ({ person }) => person === null, say: w.nobody }}>
      {({ person }) =>
        person && (
          <>
            <p>
              <Name of={person.display_name || person.username} href={hrefOf("person", person.user_id)} />
            </p>
            {person.push_devices.length ? (
              <Table
                name={w.devices}
                columns={columns}
                rows={person.push_devices}
                keyOf={({ device_id }) => device_id}
              />
            ) : (
              <Empty>{w.noDevices}</Empty>
            )}
            {silenced.value && (
              <Silence
                userId={person.user_id}
                device={silenced.value}
                onDone={() => void feed.reload()}
                onClose={() => {
                  silenced.value = null;
                }}
              />
            )}
          </>
        )
      }
    </Shown>
  );
}

/** By id, or by the username as it is. */
async function find(asked: string): Promise<{ person: PersonInfo | null }> {
  const { users } = await api("GET /v1/admin/users", { query: { q: asked } });
  const found = users.find(({ user_id, username }) => user_id === asked || username === asked.toLowerCase());
  if (!found) return { person: null };
  return { person: await api("GET /v1/admin/users/{user_id}", { path: { user_id: found.user_id } }) };
}

const DEVICE_COLUMNS: readonly Column<PushDeviceInfo>[] = [
  { name: w.device, cell: ({ device_id }) => <Name of={device_id} /> },
  { name: w.provider, cell: ({ provider }) => nameOf(provider) },
  { name: w.preview, cell: ({ preview }) => (preview ? s.yes : s.no) },
  { name: w.since, cell: ({ created_at }) => <Time at={created_at} /> },
];

type SilenceProps = { userId: string; device: PushDeviceInfo; onDone: () => void; onClose: () => void };

function Silence({ userId, device, onDone, onClose }: SilenceProps) {
  return (
    <Danger
      action={w.silence}
      onDo={async () => {
        await api("DELETE /v1/admin/users/{user_id}/push/{device_id}", {
          path: { user_id: userId, device_id: device.device_id },
        });
        onDone();
      }}
      onClose={onClose}
    >
      <p>
        <Name of={device.device_id} />
      </p>
      <p>{w.silenceHint}</p>
    </Danger>
  );
}
