/** One chat: its counters and rules, its people and how far they are, its log, and what can be done about it. */

import type { ChatOverview, MemberPosition } from "parley-chat";
import { Icon } from "parley-ui/Icon.js";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { hrefOf } from "../app/route.js";
import { Page } from "../parts/Page.js";
import { Facts, Id, Name, quiet, row, Section, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, More, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";
import { ChatActions } from "./ChatActions.js";
import { ChatLog } from "./ChatLog.js";
import { titleOf } from "./Chats.js";
import c from "./OneChat.module.css";
import { usePages } from "./pagesOf.js";

export function OneChat({ chatId }: { chatId: string }) {
  const feed = useFeed(() => api("GET /v1/admin/chats/{chat_id}", { path: { chat_id: chatId } }), [chatId]);
  const chat = feed.value.value;
  return (
    <Page
      title={chat ? s.chatCalled(titleOf(chat)) : s.chat}
      from={{ title: s.chats, href: hrefOf("chats") }}
    >
      <Shown feed={feed}>
        {(one) => (
          <>
            {one.counter === null && (
              <div class={c.lost} role="alert">
                <Icon name="warning" />
                <span>{s.counterLost}</span>
              </div>
            )}
            <ChatActions chat={one} />
            <About chat={one} />
          </>
        )}
      </Shown>
      <Members chatId={chatId} />
      <ChatLog chatId={chatId} />
    </Page>
  );
}

const percent = (share: number) =>
  share.toLocaleString("en", { style: "percent", maximumFractionDigits: share < 0.01 ? 3 : 1 });

function About({ chat }: { chat: ChatOverview }) {
  return (
    <Facts
      of={[
        [s.id, <Id key="id" of={chat.chat_id} />],
        [s.type, s.chatTypes[chat.type]],
        [s.members, number(chat.member_count)],
        [s.head, `#${number(chat.head)}`],
        [s.epoch, number(chat.epoch)],
        [
          s.counter,
          chat.counter === null ? (
            <Tag key="counter" look="bad">
              {s.lost}
            </Tag>
          ) : (
            `#${number(chat.counter)}`
          ),
        ],
        [s.openAllocations, number(chat.open_allocations)],
        [s.voids, number(chat.voids)],
        [s.gapRate, s.gapRateOf(percent(chat.gap_rate), chat.counted_through)],
        [s.hashUpto, `#${number(chat.hash_upto)}`],
        [s.lastMessage, <Time key="last" at={chat.last_at} />],
        [s.created, <Time key="created" at={chat.created_at} />],
        [s.createdBy, <Id key="by" of={chat.created_by} href={hrefOf("person", chat.created_by)} />],
        [s.retention, retentionOf(chat)],
        [s.fanout, s.fanoutOf(s.fanouts[chat.fanout], chat.chosen === null)],
        [s.posting, postingOf(chat)],
      ]}
    />
  );
}

function retentionOf(chat: ChatOverview) {
  const days =
    chat.retention === null ? s.asServer : chat.retention === 0 ? s.forEver : s.days(chat.retention);
  if (!chat.is_held) return days;
  return (
    <span class={row}>
      {days} <Tag look="warn">{s.held}</Tag>
    </span>
  );
}

function postingOf(chat: ChatOverview): string {
  const rules = [
    chat.announcement_only && s.adminsOnly,
    chat.slow_mode_seconds > 0 && s.slowMode(chat.slow_mode_seconds),
    chat.open_to_join && s.openToJoin,
  ].filter((rule) => rule !== false);
  return rules.length ? rules.join(", ") : s.everybodyPosts;
}

const COLUMNS: readonly Column<MemberPosition>[] = [
  {
    name: s.person,
    cell: (one) => (
      <>
        <span class={row}>
          <Name of={one.display_name || one.username || one.user_id} href={hrefOf("person", one.user_id)} />
          {one.state !== "active" && <Tag look="warn">{s.states[one.state]}</Tag>}
          {one.is_bot && <Tag>{s.bot}</Tag>}
        </span>
        <span class={quiet}>@{one.username}</span>
      </>
    ),
  },
  { name: s.role, cell: ({ role }) => s.rolesOf[role] },
  { name: s.joined, cell: ({ joined_sequence }) => `#${number(joined_sequence)}`, isNumber: true },
  { name: s.delivered, cell: ({ delivered_up_to }) => `#${number(delivered_up_to)}`, isNumber: true },
  { name: s.read, cell: ({ read_up_to }) => `#${number(read_up_to)}`, isNumber: true },
  {
    name: s.devices,
    cell: ({ devices }) =>
      devices.length === 0 ? (
        s.noDevice
      ) : (
        <ul class={c.devices}>
          {devices.map((device) => (
            <li key={device.device_id}>
              <Name of={device.device_id} />
              <span class={quiet}>
                #{number(device.last_acked_sequence)}
                {device.lag > 0 && `, ${s.behind(device.lag)}`}, <Time at={device.last_used_at} />
              </span>
            </li>
          ))}
        </ul>
      ),
  },
];

function Members({ chatId }: { chatId: string }) {
  const pages = usePages([chatId], async (after) => {
    const { members, next } = await api("GET /v1/admin/chats/{chat_id}/members", {
      path: { chat_id: chatId },
      query: after ? { after } : {},
    });
    return { items: members, next };
  });
  const feed = useFeed(pages.load, [chatId]);
  return (
    <Section title={s.members}>
      <Shown feed={feed} empty={{ when: ({ items }) => items.length === 0, say: s.noMembers }}>
        {({ items, next }) => (
          <>
            <Table name={s.members} columns={COLUMNS} rows={items} keyOf={({ user_id }) => user_id} />
            {next && <More onMore={() => void pages.more(feed)} />}
          </>
        )}
      </Shown>
    </Section>
  );
}
