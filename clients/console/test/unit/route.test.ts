/** Addresses lead back to what they were made of, whatever an id or a filter has in it. */

import { expect, test } from "vitest";
import "./page.js";

const { hrefOf, parsePlace } = await import("../../src/app/route.js");

test.each([
  ["chat", "chat_01", { around: "47" }],
  ["dlq", "", { error: "a&b=c?#/é", status: "all" }],
  ["message", "msg/../?x", {}],
  ["", "", {}],
])("%s %s", (name, id, query) => {
  const place = parsePlace(hrefOf(name, id, query));
  expect([place.name, place.id, Object.fromEntries(place.query)]).toEqual([name, id, query]);
});

test("the routes that others link to", () => {
  expect(parsePlace("#/dlq").name).toBe("dlq");
  expect(parsePlace("#/message/msg_01")).toMatchObject({ name: "message", id: "msg_01" });
});

test("an address that was cut is no error", () => {
  expect(parsePlace("#/chat/%E0%A4%A").id).toBe("%E0%A4%A");
});
