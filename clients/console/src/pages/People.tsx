/** Everybody, and one person. */

import { useSignal } from "@preact/signals";
import type { UserInfo } from "parley-chat";
import { Button, Field, IconButton, Select } from "parley-ui/controls.js";
import { useEffect } from "preact/hooks";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { hrefOf, place, refine } from "../app/route.js";
import { operator } from "../app/session.js";
import { Page } from "../parts/Page.js";
import { Filters, Name, quiet, row, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, More, Table } from "../parts/Table.js";
import { s } from "../strings.en.js";
import { OnePerson } from "./OnePerson.js";
import { type PersonAction, PersonDialog } from "./PersonActions.js";
import { usePages } from "./pagesOf.js";

export default function People() {
  const { name, id } = place.value;
  return name === "person" && id ? <OnePerson key={id} userId={id} /> : <List />;
}

export const personName = (one: Pick<UserInfo, "display_name" | "username" | "user_id">) =>
  one.display_name || one.username || one.user_id;

const LOOKS = { active: "good", disabled: "warn", deleted: "bad" } as const;

export function Standing({ of: one }: { of: UserInfo }) {
  return (
    <span class={row}>
      <Tag look={LOOKS[one.state]}>{s.states[one.state]}</Tag>
      {one.is_operator && <Tag look="accent">{s.operator}</Tag>}
      {one.is_bot && <Tag>{s.bot}</Tag>}
    </span>
  );
}

const FLAGS = ["state", "operator", "bot"] as const;

function List() {
  const { query } = place.value;
  const q = query.get("q") ?? "";
  const flags = Object.fromEntries(FLAGS.map((name) => [name, query.get(name) ?? ""]));
  const words = useSignal(q);
  const asked = useSignal<{ readonly action: PersonAction; readonly person: UserInfo } | null>(null);
  useEffect(() => {
    words.value = q;
  }, [q]);
  const key = query.toString();
  const pages = usePages([key], async (after) => {
    const given = Object.entries({ q, ...flags, after }).filter(([, value]) => value);
    const { users, next } = await api("GET /v1/admin/users", { query: Object.fromEntries(given) });
    return { items: users, next };
  });
  const feed = useFeed(pages.load, [key]);
  const search = (more: Readonly<Record<string, string>> = {}) =>
    refine(hrefOf("people", "", { q: words.value.trim(), ...flags, ...more }));
  const choose = (name: string) => (value: string) => search({ [name]: value });
  return (
    <Page title={s.people}>
      <Filters onSubmit={() => search()}>
        <Field label={s.searchPeople} value={words} type="search" autoComplete="off" />
        <Select
          label={s.state}
          value={flags.state ?? ""}
          options={s.stateFilter}
          onChange={choose("state")}
        />
        <Select
          label={s.operators}
          value={flags.operator ?? ""}
          options={s.flagFilter}
          onChange={choose("operator")}
        />
        <Select label={s.bots} value={flags.bot ?? ""} options={s.flagFilter} onChange={choose("bot")} />
        <Button type="submit">{s.search}</Button>
      </Filters>
      <Shown
        feed={feed}
        empty={{ when: ({ items }) => items.length === 0, say: <strong>{s.noPeople}</strong> }}
      >
        {({ items, next }) => (
          <>
            <Table
              name={s.people}
              columns={[
                ...COLUMNS,
                actionsColumn((action, person) => {
                  asked.value = { action, person };
                }),
              ]}
              rows={items}
              keyOf={({ user_id }) => user_id}
            />
            {next && <More onMore={() => void pages.more(feed)} />}
          </>
        )}
      </Shown>
      {asked.value && (
        <PersonDialog
          action={asked.value.action}
          person={asked.value.person}
          onClose={() => {
            asked.value = null;
          }}
        />
      )}
    </Page>
  );
}

const COLUMNS: readonly Column<UserInfo>[] = [
  {
    name: s.name,
    cell: (one) => (
      <>
        <Name of={personName(one)} href={hrefOf("person", one.user_id)} />
        <span class={quiet}>{one.username ? `@${one.username}` : one.user_id}</span>
      </>
    ),
  },
  { name: s.state, cell: (one) => <Standing of={one} /> },
  { name: s.lastSeen, cell: ({ last_seen }) => <Time at={last_seen} /> },
  { name: s.created, cell: ({ created_at }) => <Time at={created_at} /> },
];

/** What is done most often, without a visit to the person's page. */
const actionsColumn = (ask: (action: PersonAction, person: UserInfo) => void): Column<UserInfo> => ({
  name: s.actions,
  isUnnamed: true,
  cell: (person) =>
    person.state !== "deleted" && (
      <span class={row}>
        {person.state === "active" ? (
          <IconButton
            icon="block"
            name={s.disable}
            disabled={operator.value?.isReadOnly === true}
            onClick={() => ask("disable", person)}
          />
        ) : (
          <IconButton
            icon="tick"
            name={s.enable}
            disabled={operator.value?.isReadOnly === true}
            onClick={() => ask("enable", person)}
          />
        )}
        <IconButton
          icon="leave"
          name={s.revokeAll}
          disabled={operator.value?.isReadOnly === true}
          onClick={() => ask("revokeAll", person)}
        />
      </span>
    ),
});
