import { createHash } from "node:crypto";
import { connect } from "parley-chat";
import WebSocket from "ws";

const { PARLEY_URL = "http://127.0.0.1:8080", PARLEY_TOKEN = "" } = process.env;
const me = await connect(PARLEY_URL, PARLEY_TOKEN, { WebSocket });
console.log(`${me.userId} listens`);

for await (const entry of me) {
  if (entry.kind !== "message" || entry.sender_id === me.userId) continue;
  const answer = me.chat(entry.chat_id).send(`You said: ${entry.content}`, {
    replyTo: entry.message_id,
    clientMessageId: idOfAnswer(entry.message_id),
  });
  // The entry counts as read when the loop goes on: after a crash before that it comes again, and is answered under the same id.
  await answer.stored;
}

/** A UUIDv4 that is the same each time for a message: the server stores one answer, however often the bot was killed. */
function idOfAnswer(messageId) {
  const hash = createHash("sha256").update(messageId).digest("hex");
  return `${hash.slice(0, 8)}-${hash.slice(8, 12)}-4${hash.slice(13, 16)}-8${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
}
