/** The nodes that are alive, and how each is; the backups of the server. */

import { useSignal } from "@preact/signals";
import type { BackupInfo, NodeInfo } from "parley-chat";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { Danger } from "../parts/Danger.js";
import { Page } from "../parts/Page.js";
import { Act, Id, Name, quiet, Section, Tag, Time } from "../parts/parts.js";
import { Empty, Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";

const w = s.ofNodes;

export default function Nodes() {
  const feed = useFeed(() => api("GET /v1/admin/nodes"), []);
  const drained = useSignal<NodeInfo | null>(null);
  const columns: readonly Column<NodeInfo>[] = [
    ...NODE_COLUMNS,
    {
      name: w.actions,
      isUnnamed: true,
      cell: (node) => (
        <Act
          disabled={node.draining === true}
          onClick={() => {
            drained.value = node;
          }}
        >
          {w.drain}
        </Act>
      ),
    },
  ];
  return (
    <Page title={s.nodes}>
      <Shown feed={feed}>
        {({ nodes }) => (
          <Table name={s.nodes} columns={columns} rows={nodes} keyOf={(node) => node.node_id} />
        )}
      </Shown>
      <Backups />
      {drained.value && (
        <Drain
          node={drained.value}
          onDone={() => void feed.reload()}
          onClose={() => {
            drained.value = null;
          }}
        />
      )}
    </Page>
  );
}

const known = <Value,>(value: Value | null, say: (value: Value) => string) =>
  value === null ? "" : say(value);

export const NODE_COLUMNS: readonly Column<NodeInfo>[] = [
  {
    name: w.node,
    cell: (node) => (
      <>
        <Id of={node.node_id} />
        {node.is_self && <div class={quiet}>{w.here}</div>}
      </>
    ),
  },
  { name: w.state, cell: (node) => <State of={node} /> },
  { name: w.roles, cell: ({ roles }) => roles.join(", ") },
  { name: w.version, cell: ({ version }) => version ?? s.unknown },
  { name: w.since, cell: ({ since }) => (since ? <Time at={since} /> : s.unknown) },
  { name: w.connections, isNumber: true, cell: ({ connections }) => known(connections, number) },
  { name: w.memory, isNumber: true, cell: ({ memory_bytes }) => known(memory_bytes, w.megabytes) },
  { name: w.loop, isNumber: true, cell: ({ loop_delay_ms }) => known(loop_delay_ms, w.milliseconds) },
  { name: w.clock, isNumber: true, cell: ({ clock_offset_ms }) => known(clock_offset_ms, w.clockOffset) },
  { name: w.lag, isNumber: true, cell: ({ lag }) => known(lag, number) },
];

function State({ of: node }: { of: NodeInfo }) {
  if (node.silent) {
    return (
      <>
        <Tag look="bad">{w.silent}</Tag>
        <div class={quiet}>
          <Name of={node.silent} />
        </div>
      </>
    );
  }
  if (node.draining) return <Tag look="warn">{w.draining}</Tag>;
  if (node.store_available === false) return <Tag look="bad">{w.storeAway}</Tag>;
  return <Tag look="good">{w.up}</Tag>;
}

function Drain({ node, onDone, onClose }: { node: NodeInfo; onDone: () => void; onClose: () => void }) {
  return (
    <Danger
      action={w.drain}
      onDo={async () => {
        await api("POST /v1/admin/nodes/{node_id}/drain", { path: { node_id: node.node_id } });
        onDone();
      }}
      onClose={onClose}
    >
      <p>{w.drainHint(node.node_id)}</p>
      {node.is_self && <p>{w.drainSelf}</p>}
      <p class={quiet}>
        {w.connections}: {known(node.connections, number)}
      </p>
    </Danger>
  );
}

function Backups() {
  const feed = useFeed(() => api("GET /v1/admin/backups"), []);
  return (
    <Section title={w.backups}>
      <Shown feed={feed}>
        {({ target, backups, damaged }) => (
          <>
            {damaged.map((line) => (
              <p key={line} role="alert">
                <Name of={line} />
              </p>
            ))}
            {backups.length ? (
              <Table
                name={w.backups}
                columns={BACKUP_COLUMNS}
                rows={backups}
                keyOf={(backup) => backup.backup_id}
              />
            ) : (
              <Empty>{target ? w.noBackups(target) : w.noTarget}</Empty>
            )}
          </>
        )}
      </Shown>
    </Section>
  );
}

const BACKUP_COLUMNS: readonly Column<BackupInfo>[] = [
  { name: w.backup, cell: ({ backup_id }) => <Id of={backup_id} /> },
  { name: w.made, cell: ({ made_at }) => <Time at={made_at} /> },
  { name: s.chats, isNumber: true, cell: ({ chats }) => number(chats) },
  { name: w.entries, isNumber: true, cell: ({ entries }) => number(entries) },
  {
    name: w.size,
    isNumber: true,
    cell: ({ size_bytes, files_lacking }) =>
      files_lacking ? `${w.megabytes(size_bytes)}, ${w.lacking(files_lacking)}` : w.megabytes(size_bytes),
  },
  { name: w.version, cell: ({ version }) => version },
];
