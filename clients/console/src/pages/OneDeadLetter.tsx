/** One dead letter: the message, every attempt, and what operators did. Who reads it is in the audit log. */

import type { DeadLetterStory } from "parley-chat";
import { wholeTime } from "parley-ui/time.js";
import { api } from "../app/api.js";
import { useOnce } from "../app/feed.js";
import { hrefOf } from "../app/route.js";
import { Page } from "../parts/Page.js";
import { Facts, Id, Name, pre, quiet, row, Section, Tag, Time } from "../parts/parts.js";
import { Shown } from "../parts/Shown.js";
import { number, s } from "../strings.en.js";
import { Status } from "./DeadLetters.js";
import c from "./DeadLetters.module.css";
import { Orders } from "./Replay.js";

export function OneDeadLetter({ dlqId }: { dlqId: string }) {
  const feed = useOnce(() => api("GET /v1/admin/dlq/{dlq_id}", { path: { dlq_id: dlqId } }), [dlqId]);
  return (
    <Page title={s.deadLetter} from={{ title: s.deadLetters, href: hrefOf("dlq") }}>
      <Orders chosen={() => ({ ids: [dlqId] })} what={dlqId} onDone={() => void feed.reload()} />
      <Shown feed={feed}>
        {(deadLetter) => (
          <>
            <About deadLetter={deadLetter} />
            <Section title={s.body}>
              {deadLetter.original_message.content === null ? (
                <p class={quiet}>{s.noBody}</p>
              ) : (
                <pre class={pre} dir="auto">
                  {deadLetter.original_message.content}
                </pre>
              )}
            </Section>
            <Story deadLetter={deadLetter} />
          </>
        )}
      </Shown>
    </Page>
  );
}

function About({ deadLetter }: { deadLetter: DeadLetterStory }) {
  const { original_message: message } = deadLetter;
  return (
    <Facts
      of={[
        [s.status, <Status key="status" of={deadLetter} />],
        [s.error, <Name key="error" of={deadLetter.error} />],
        [s.recipient, <Name key="recipient" of={message.recipient} />],
        [s.attempts, number(deadLetter.retry_count)],
        [s.message, <Id key="message" of={message.msg_id} href={hrefOf("message", message.msg_id)} />],
        [
          s.chat,
          <Id
            key="chat"
            of={deadLetter.chat_id}
            href={hrefOf("chat", deadLetter.chat_id, { around: deadLetter.sequence })}
          />,
        ],
        [s.position, `#${number(deadLetter.sequence)}`],
        [s.from, <Id key="from" of={message.sender} href={hrefOf("person", message.sender)} />],
        [s.firstAttempt, <Time key="first" at={deadLetter.first_attempt} />],
        [s.lastAttempt, <Time key="last" at={deadLetter.last_attempt} />],
        [s.becameDead, <Time key="dead" at={deadLetter.dlq_timestamp} />],
        [
          s.source,
          `${deadLetter.source_topic} ${number(deadLetter.source_partition)}:${number(deadLetter.source_offset)}`,
        ],
      ]}
    />
  );
}

function Story({ deadLetter }: { deadLetter: DeadLetterStory }) {
  return (
    <Section title={s.story}>
      <ol class={c.story} aria-label={s.story}>
        {deadLetter.history.map((event, at) => (
          <li key={at}>
            <div class={row}>
              <Tag look="accent">{event.action}</Tag>
              <time dateTime={event.at}>{wholeTime(Date.parse(event.at))}</time>
              {event.actor && <span class={quiet}>{s.by(event.actor)}</span>}
            </div>
            {(event.error || event.detail) && (
              <Name of={[event.error, event.detail].filter(Boolean).join(": ")} />
            )}
          </li>
        ))}
      </ol>
    </Section>
  );
}
