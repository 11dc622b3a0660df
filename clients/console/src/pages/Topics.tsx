/** How far those are who read what happens. */

import type { TopicInfo } from "parley-chat";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { Page } from "../parts/Page.js";
import { Name, quiet } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { type Column, Table } from "../parts/Table.js";
import { number, s } from "../strings.en.js";

const w = s.ofTopics;

interface Reader {
  readonly topic: TopicInfo;
  readonly group: string;
  readonly lag: number | null;
}

export default function Topics() {
  const feed = useFeed(() => api("GET /v1/admin/topics"), []);
  return (
    <Page title={s.topics}>
      <Shown feed={feed} empty={{ when: ({ topics }) => topics.length === 0, say: w.none }}>
        {({ topics }) => (
          <Table
            name={s.topics}
            columns={COLUMNS}
            rows={topics.flatMap(readers)}
            keyOf={({ topic, group }) => `${topic.name} ${group}`}
          />
        )}
      </Shown>
    </Page>
  );
}

/** A line for each group; one for a topic without any. */
function readers(topic: TopicInfo): Reader[] {
  if (!topic.groups.length) return [{ topic, group: "", lag: null }];
  return topic.groups.map(({ group, lag }) => ({ topic, group, lag }));
}

const COLUMNS: readonly Column<Reader>[] = [
  { name: w.topic, cell: ({ topic }) => <Name of={topic.name} /> },
  { name: w.partitions, isNumber: true, cell: ({ topic }) => number(topic.partitions) },
  {
    name: w.group,
    cell: ({ group }) => (group ? <Name of={group} /> : <span class={quiet}>{w.noGroups}</span>),
  },
  { name: w.lag, isNumber: true, cell: ({ lag }) => (lag === null ? "" : number(lag)) },
];
