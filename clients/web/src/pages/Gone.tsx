/** In the place of messages: the person is not in this chat. */

import { useSignal } from "@preact/signals";
import { RequestRefused } from "parley-chat";
import { Button } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Icon } from "parley-ui/Icon.js";
import { reasonOf } from "parley-ui/pageSession.js";
import type { Conversation } from "../app/conversation.js";
import { s } from "../strings.en.js";
import frame from "./Frame.module.css";

/** One that is open can be joined by whoever has its link. */
export default function Gone({ conversation }: { conversation: Conversation }) {
  const reason = useSignal("");
  const isLeft = conversation.trouble.value === "not_a_member";
  const join = async () => {
    try {
      await conversation.join();
    } catch (error) {
      const isClosed = error instanceof RequestRefused && !error.temporary;
      reason.value = isClosed ? s.notOpen : reasonOf(error);
    }
  };
  return (
    <div class={frame.nothing}>
      <Icon name="block" size={40} />
      <p>{isLeft ? s.notMember : s.notFound}</p>
      {isLeft && !reason.value && (
        <>
          <p class={controls.hint}>{s.notMemberHint}</p>
          <Button onClick={() => void join()}>{s.joinChat}</Button>
        </>
      )}
      {reason.value && <p role="alert">{reason.value}</p>}
    </div>
  );
}
