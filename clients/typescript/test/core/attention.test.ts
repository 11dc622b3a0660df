/** Whether somebody looks: said when it changes, and again to a connection that does not know. */

import { beforeEach, expect, test } from "vitest";
import type { ClientFrame } from "../../src/contract.js";
import { ClientCore } from "../../src/core/core.js";
import { defaultTiming } from "../../src/core/timing.js";

const WELCOME = {
  type: "welcome",
  user_id: "ada",
  device_id: "laptop",
  session_id: "ses_1",
  server_time: "2026-03-01T12:00:00Z",
  heartbeat_seconds: 30,
  limits: {},
} as const;

let core: ClientCore;

beforeEach(() => {
  core = new ClientCore({ timing: defaultTiming, chance: () => 0, durable: false, wake: () => {} });
  core.connected(WELCOME, 0);
});

const said = () =>
  core
    .framesToSend(0, 0)
    .filter((frame: ClientFrame) => frame.type === "attention")
    .map(({ looking }) => looking);

test("a connection begins as if somebody looked", () => {
  expect(said()).toEqual([]);
});

test("a change is said once", () => {
  core.look(false);
  expect(said()).toEqual([false]);
  core.look(false);
  expect(said()).toEqual([]);
  core.look(true);
  expect(said()).toEqual([true]);
});

test("the next connection is told that nobody looks", () => {
  core.look(false);
  expect(said()).toEqual([false]);
  core.disconnected();
  core.connected(WELCOME, 0);
  expect(said()).toEqual([false]);
});
