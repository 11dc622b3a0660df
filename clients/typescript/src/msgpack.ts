/** MessagePack in binary frames: `connect(url, token, { codec: msgpack })`. */

import { decode, encode } from "@msgpack/msgpack";
import { type Codec, NotAFrame, read, written } from "./codec.js";
import { MSGPACK_PROTOCOL } from "./contract.js";

/** Smaller frames, which cost the server a little more: entries are stored as JSON. */
export const msgpack: Codec = {
  protocol: MSGPACK_PROTOCOL,
  encode: (frame) => encode(written(frame)),
  decode(data) {
    const bytes = data instanceof ArrayBuffer ? new Uint8Array(data) : data;
    if (!(bytes instanceof Uint8Array)) {
      throw new NotAFrame("this connection speaks MessagePack in binary frames");
    }
    return read(() => decode(bytes));
  },
};
