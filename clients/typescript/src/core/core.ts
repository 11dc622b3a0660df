/*
 * SKETCH of the public surface, so that the shell can be built against it. The implementation replaces it.
 *
 * The shell feeds the core frames and the time, then drains the results, as in Python:
 *
 *   core.receive(frame, now)              a frame from the server
 *   core.tick(now)                        run what is due
 *   core.framesToSend(now, wall)          frames for the server, as they travel; [] while offline
 *   core.toSave() … core.saved(changes)   what must be durable before it continues
 *   core.events()                         events for the application and the shell
 *   core.nextWake()                       when `tick` has something to do; undefined: never
 *
 * `now` (milliseconds) only rises; `wall` is the time of day. Every input calls `wake`.
 *
 *   new ClientCore({ timing?: Partial<Timing>, chance: () => number, durable: boolean, wake?: () => void })
 *
 *   restore(saved: SavedState): void
 *   userId: string; online: boolean; silent: boolean        // silent: replace the connection
 *   chat(chatId): ChatModel                                   // the same object for as long as the core lives
 *   rows(): Map<string, OverviewChat>
 *
 *   // Input from the application
 *   send(message: OutgoingMessage): void                      // throws OutboxFull, RequestRefused
 *   markRead(chatId, upTo: number | string): number           // the number of its "readMarkDone"
 *   askOverview(): number                                     // wait for "overviewComplete" of this round or later
 *   read(chat), readAll(), take(chat, now): Entry | undefined, markProcessed(chat, now), stop(chat)
 *   seek(chat, cursor, now), prove(chat)                      // prove: compare the hash at the end now
 *   open(chat), close(chat), reloadOpenChats()
 *   startTyping(chat, now), stopTyping(chat), watchPresence(userIds)
 *   probe(now)                                                // heartbeat at once: the page woke up
 *
 *   // Results of HTTP requests
 *   messageStored(key, ack, now), messageNotStored(key, wall), checkFailed(key, now)
 *   chatLoaded(chat, { info, members, marks }), loadFailed(chat, refusal | undefined, now)
 *
 *   // Other tabs of this device
 *   adopt(messages: readonly OutgoingMessage[])               // rows that are in the outbox of the store, in its order
 *   settledElsewhere: messageStored / messageRefused(key, refusal, now)
 *   adoptCursors(cursors: ReadonlyMap<string, Cursor>, now)   // another leader moved and saved these
 *
 *   // The connection
 *   connected(welcome, now), disconnected(), receive(frame, now)
 *
 * Events, a union on `type`:
 *   { type: "stored", key, ack } | { type: "refused", key, refusal, isKept } | { type: "saved", keys }
 *   | { type: "check", message } | { type: "entries", chatId } | { type: "readMarkDone", number, refusal? }
 *   | { type: "overviewComplete", round } | { type: "loadChat", chatId } | { type: "chatOpened", chatId, refusal? }
 *   | { type: "requestFailed", refusal }
 *   | { type: "update", what, chatId?, userId? }
 *     what: "unread" | "typing" | "members" | "receipts" | "settings" | "presence" | "connection" | "invitations" | "log"
 *
 * ChatModel: chatId, row, unreadCount, unreadMore, isMuted(wall), isOpen, members (ReadonlyMap), typing (user ids),
 *   receipts(sequence, senderId), inbox (with `restarts`), logDifference, proof: ProofState
 * core.outbox: has(key), size, isQueued(key), isKept(key); core.journal.of(key): steps with wall times
 * core.cursors: get(chatId), flush(now), lastAcks(); core.readMarks: add(undefined), has(number), framesToSend(), drop(number)
 * core.presence: get(userId), recall(userId, now), noteQueried(views, now)
 * Errors are in ./errors.ts: ClientError, CannotConnect, BadToken, Closed, RequestRefused, ReadElsewhere, OutboxFull, StoreUnusable
 */
export {};
