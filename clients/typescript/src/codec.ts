/**
 * Frames as they travel. Requests are written as the server's own encoder writes them: fields in the order of the
 * contract, without those that have their default. tests/wire_vectors holds the bytes.
 */

import {
  type ClientFrame,
  JSON_PROTOCOL,
  OTHER_DEFAULTS,
  REQUEST_FIELDS,
  type ServerFrame,
} from "./contract.js";

/** One encoding of the contract: `json`, or `msgpack` of `parley-chat/msgpack`. */
export interface Codec {
  /** The subprotocol that a WebSocket asks for. */
  readonly protocol: string;

  /** The data of one request. `NotText` if a text in it cannot be sent. */
  encode(frame: ClientFrame): string | Uint8Array<ArrayBuffer>;

  /** The server's frame; one of a newer server may be of a type that this client does not know. `NotAFrame` for anything else. */
  decode(data: unknown): ServerFrame;
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
    return read(() => JSON.parse(data));
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
  for (const [name, often] of Object.entries(REQUEST_FIELDS)) {
    const value = given[name];
    const usual = OTHER_DEFAULTS[`${frame.type}.${name}`] ?? often;
    const isEmpty = Array.isArray(value) && value.length === 0 && Array.isArray(usual);
    if (value === undefined || value === usual || isEmpty) continue;
    for (const text of [value].flat()) {
      if (typeof text === "string" && !isText(text)) {
        throw new NotText(`${name} was cut inside a character`);
      }
    }
    fields[name] = value;
  }
  return fields;
}

/** The frame that was read. */
export function read(what: () => unknown): ServerFrame {
  let frame: unknown;
  try {
    frame = what();
  } catch (error) {
    throw new NotAFrame("it cannot be read", { cause: error });
  }
  if (typeof frame !== "object" || typeof (frame as ServerFrame | null)?.type !== "string") {
    throw new NotAFrame("a frame is one object with a type");
  }
  return frame as ServerFrame;
}
