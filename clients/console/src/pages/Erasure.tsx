/** How far a deletion or an erasure is. The job goes on whether or not somebody looks. */

import { RequestRefused } from "parley-chat";
import { api } from "../app/api.js";
import { useFeed } from "../app/feed.js";
import { Facts, Section, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { number, s } from "../strings.en.js";

/** Of a person or of a chat; nothing where nothing is erased. */
export function Erasure({ id }: { id: string }) {
  const feed = useFeed(() => api("GET /v1/admin/erasures/{user_id}", { path: { user_id: id } }), [id]);
  const error = feed.error.value;
  if (error instanceof RequestRefused && error.code === "not_found") return null;
  return (
    <Section title={s.erasure}>
      <Shown feed={feed}>
        {(one) => (
          <>
            {one.finished_at === null && <progress aria-label={s.erasure} />}
            <Facts
              of={[
                [
                  s.state,
                  <Tag key="state" look={one.finished_at ? "good" : "accent"}>
                    {one.finished_at ? s.erased : s.erasing}
                  </Tag>,
                ],
                [s.begun, <Time key="begun" at={one.begun_at} />],
                [s.finished, <Time key="finished" at={one.finished_at} />],
                [s.bodiesRemoved, number(one.hot + one.cold)],
                [s.chats, number(one.chats.length + one.chats_left_out)],
                [s.heldChats, number(one.chats.filter(({ is_held }) => is_held).length)],
              ]}
            />
          </>
        )}
      </Shown>
    </Section>
  );
}
