/** What a client does not need to send: loaded behind the rest, as a file of its own. */

// Bundlers put what two files need into a third one. All of the first half being in reach here, that is all of it.
export { Client } from "./client.js";
export { ClientReading } from "./reading.js";
export { Requests } from "./requests.js";
export { discardRow, retryRow } from "./storage/refusedRows.js";

export type Later = typeof import("./later.js");
