import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Codec, isText, json, NotAFrame, NotText } from "../src/codec.js";
import type { ClientFrame, ServerFrame } from "../src/contract.js";
import { msgpack } from "../src/msgpack.js";
import { clientVectors, serverVectors, type Vector } from "./wireVectors.js";

interface Spoken {
  readonly name: string;
  readonly codec: Codec;
  readonly bytes: (vector: Vector<unknown>) => string | Uint8Array;
}

const CODECS: readonly Spoken[] = [
  { name: "JSON", codec: json, bytes: (vector) => vector.json },
  {
    name: "MessagePack",
    codec: msgpack,
    bytes: (vector) => new Uint8Array(Buffer.from(vector.msgpack, "hex")),
  },
];
const HALF_A_PAIR = "\ud83d";

describe.each(CODECS)("$name", ({ codec, bytes }) => {
  test.each(clientVectors)("a request is written byte for byte: $name", (vector) => {
    expect(codec.encode(vector.value)).toEqual(bytes(vector));
  });

  test.each(clientVectors)(
    "the order in which an application names fields does not matter: $name",
    (vector) => {
      const backwards = Object.fromEntries(Object.entries(vector.value).reverse()) as unknown as ClientFrame;
      expect(codec.encode(backwards)).toEqual(bytes(vector));
    },
  );

  test.each(serverVectors)("a frame of the server is read: $name", (vector) => {
    expect(codec.decode(bytes(vector))).toEqual(vector.value);
  });

  test("a frame of a newer server is read, too: the core passes it over", () => {
    const newer = {
      name: "",
      value: {},
      json: '{"type":"telepathy"}',
      msgpack: "81a474797065a974656c657061746879",
    };
    expect(codec.decode(bytes(newer))).toEqual({ type: "telepathy" });
  });

  test.each([
    ["[]", "90"],
    ["null", "c0"],
    ['"ack"', "a361636b"],
    ["{}", "80"],
    ['{"type":1}', "81a47479706501"],
    ["{", "81"],
    ["", ""],
    ["{}{}", "8080"],
  ])("what is no object with a type is no frame: %j", (text, hex) => {
    expect(() => codec.decode(bytes({ name: "", value: {}, json: text, msgpack: hex }))).toThrow(NotAFrame);
  });

  test.each([
    ["text", { type: "send_message", chat_id: "c", client_message_id: "m", content: `a${HALF_A_PAIR}` }],
    ["a list", { type: "presence_query", user_ids: ["u", HALF_A_PAIR] }],
  ] as const)("half of a letter in %s is not sent", (_, frame) => {
    expect(() => codec.encode(frame)).toThrow(NotText);
  });

  test("any frame that is not bytes of its kind is refused", () => {
    fc.assert(
      fc.property(fc.uint8Array(), fc.string(), (data, text) => {
        const given = codec === json ? text : new Uint8Array(data);
        try {
          codec.decode(given);
        } catch (error) {
          expect(error).toBeInstanceOf(NotAFrame);
        }
      }),
    );
  });
});

test("a connection that speaks JSON takes no binary frame, and the other way round", () => {
  expect(() => json.decode(new Uint8Array([0x80]).buffer)).toThrow(NotAFrame);
  expect(() => msgpack.decode("{}")).toThrow(NotAFrame);
});

test("a browser gives binary frames as buffers", () => {
  const vector = serverVectors[0];
  const copy = new Uint8Array(Buffer.from(vector?.msgpack ?? "", "hex"));
  expect(msgpack.decode(copy.buffer)).toEqual(vector?.value);
});

const REQUESTS: Readonly<Record<ClientFrame["type"], true>> = {
  hello: true,
  refresh: true,
  send_message: true,
  edit_message: true,
  delete_message: true,
  react: true,
  sync_request: true,
  sync: true,
  sync_overview: true,
  ack: true,
  delivery_receipt: true,
  read_receipt: true,
  typing_start: true,
  typing_stop: true,
  attention: true,
  presence_subscribe: true,
  presence_query: true,
  heartbeat: true,
};

const ANSWERS: Readonly<Record<ServerFrame["type"], true>> = {
  welcome: true,
  ack: true,
  message_batch: true,
  overview: true,
  heartbeat_ack: true,
  messages: true,
  chat_changed: true,
  invitation: true,
  invitation_ended: true,
  receipt: true,
  typing: true,
  presence_state: true,
  presence: true,
  refused: true,
};

test("there is a vector for each request and for each frame of the server", () => {
  expect(new Set(clientVectors.map((one) => one.value.type))).toEqual(new Set(Object.keys(REQUESTS)));
  expect(new Set(serverVectors.map((one) => one.value.type))).toEqual(new Set(Object.keys(ANSWERS)));
});

test("a text is whole exactly if it survives UTF-8", () => {
  const pieces = fc.constantFrom("a", "é", "\u{1f44b}", "\ud83d", "\ude00", "\udbff");
  fc.assert(
    fc.property(fc.array(pieces), (found) => {
      const text = found.join("");
      expect(isText(text)).toBe(Buffer.from(text, "utf8").toString("utf8") === text);
    }),
  );
});
