/**
 * Frames as they travel. Requests are written as the server's own encoder writes them: fields in the order of the
 * contract, without those that have their default. tests/wire_vectors holds the bytes.
 */

import {
  type ClientFrame,
  JSON_PROTOCOL,
  REQUEST_FIELDS,
  SERVER_TYPES,
  type ServerFrame,
} from "./contract.js";

/** One encoding of the contract: `json`, or `msgpack` of `parley-chat/msgpack`. */
export interface Codec {
  /** The subprotocol that a WebSocket asks for. */
  readonly protocol: string;

  /** The data of one request. `NotText` if a text in it cannot be sent. */
  encode(frame: ClientFrame): string | Uint8Array<ArrayBuffer>;

  /** The server's frame; undefined for a type that this client does not know. `NotAFrame` for anything else. */
  decode(data: unknown): ServerFrame | undefined;
}

/** What arrived is not a frame of the contract: the connection cannot go on. */
export class NotAFrame extends Error {
  override name = "NotAFrame";
}

/** A text has half of a surrogate pair: no server could store it. */
export class NotText extends Error {
  override name = "NotText";
}

/** JSON in text frames. */
export const json: Codec = {
  protocol: JSON_PROTOCOL,
  encode: (frame) => JSON.stringify(written(frame)),
  decode(data) {
    if (typeof data !== "string") throw new NotAFrame("this connection speaks JSON in text frames");
    return known(() => JSON.parse(data));
  },
};

/** Whether a text has no half of a surrogate pair. Texts that have one are refused before they are queued. */
export function isText(text: string): boolean {
  return !/\p{Surrogate}/u.test(text);
}

/** The fields of a request that are written, in their order. */
export function written(frame: ClientFrame): Record<string, unknown> {
  const fields: Record<string, unknown> = { type: frame.type };
  const given: Readonly<Record<string, unknown>> = { ...frame };
  for (const [name, usual] of Object.entries(REQUEST_FIELDS[frame.type])) {
    const value = given[name];
    const isEmpty = Array.isArray(usual) && Array.isArray(value) && value.length === 0;
    if (value === undefined || value === usual || isEmpty) continue;
    for (const text of [value].flat()) {
      if (typeof text === "string" && !isText(text)) {
        throw new NotText(`${name} has half of a surrogate pair; the text was cut inside a letter`);
      }
    }
    fields[name] = value;
  }
  return fields;
}

/** The frame that was read, if its type is known. */
export function known(read: () => unknown): ServerFrame | undefined {
  let frame: unknown;
  try {
    frame = read();
  } catch (error) {
    throw new NotAFrame("what arrived cannot be read", { cause: error });
  }
  const type = typeof frame === "object" && frame !== null && "type" in frame ? frame.type : undefined;
  if (typeof type !== "string") throw new NotAFrame("a frame is one object with a type");
  return Object.hasOwn(SERVER_TYPES, type) ? (frame as ServerFrame) : undefined;
}
