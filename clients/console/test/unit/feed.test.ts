/** What is shown is asked for again and again; and how old it is, is known. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { listeners, page } from "./page.js";

vi.useFakeTimers();
const { Feed, isPaused, isStale, reloadShown, shownSince } = await import("../../src/app/feed.js");
const { isOver } = await import("../../src/app/session.js");

let stops: (() => void)[] = [];
beforeEach(() => {
  page.hidden = false;
  isPaused.value = false;
  isOver.value = false;
});
afterEach(() => {
  for (const stop of stops) stop();
  stops = [];
});

/** Answers with how often it was asked, until it is told to fail. */
function counted() {
  const state = { count: 0, fails: false };
  const load = async () => {
    state.count += 1;
    if (state.fails) throw new Error("away");
    return state.count;
  };
  return { state, load };
}

function started<Value>(feed: InstanceType<typeof Feed<Value>>) {
  stops.push(feed.start());
  return feed;
}

test("it asks at once, and each five seconds", async () => {
  const { load } = counted();
  const feed = started(new Feed(load));
  await vi.advanceTimersByTimeAsync(0);
  expect(feed.value.value).toBe(1);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(feed.value.value).toBe(3);
});

test.each(["paused", "hidden", "over"])(
  "it rests while it is %s, and asks at once afterwards",
  async (how) => {
    const { state, load } = counted();
    started(new Feed(load));
    await vi.advanceTimersByTimeAsync(0);
    if (how === "paused") isPaused.value = true;
    if (how === "over") isOver.value = true;
    page.hidden = how === "hidden";
    await vi.advanceTimersByTimeAsync(60_000);
    expect(state.count).toBe(1);
    isPaused.value = false;
    isOver.value = false;
    page.hidden = false;
    if (how === "hidden") listeners.get("visibilitychange")?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(state.count).toBe(2);
  },
);

test("a failure keeps what was known, says why, and is mended by the next answer", async () => {
  const { state, load } = counted();
  const feed = started(new Feed(load));
  await vi.advanceTimersByTimeAsync(0);
  state.fails = true;
  await vi.advanceTimersByTimeAsync(5_000);
  expect([feed.value.value, String(feed.error.value)]).toEqual([1, "Error: away"]);
  await vi.advanceTimersByTimeAsync(16_000);
  expect(isStale.value).toBe(true);
  state.fails = false;
  await vi.advanceTimersByTimeAsync(6_000);
  expect([feed.error.value, isStale.value]).toEqual([null, false]);
});

test("the page is as old as the oldest of what it shows", async () => {
  const [one, other] = [counted(), counted()];
  started(new Feed(one.load));
  const late = started(new Feed(other.load));
  await vi.advanceTimersByTimeAsync(0);
  other.state.fails = true;
  await vi.advanceTimersByTimeAsync(20_000);
  expect(shownSince.value).toBe(late.at.value);
  expect(isStale.value).toBe(true);
});

test("an answer that was overtaken is thrown away", async () => {
  const answers: ((value: string) => void)[] = [];
  const feed = started(new Feed(() => new Promise<string>((resolve) => answers.push(resolve))));
  void feed.reload();
  answers[1]?.("newer");
  answers[0]?.("older");
  await vi.advanceTimersByTimeAsync(0);
  expect(feed.value.value).toBe("newer");
});

test("what is asked for once is asked again by hand alone, and has no age", async () => {
  const { state, load } = counted();
  const feed = started(new Feed(load, true));
  await vi.advanceTimersByTimeAsync(60_000);
  expect([state.count, shownSince.value]).toEqual([1, null]);
  reloadShown();
  expect(state.count).toBe(1);
  await feed.reload();
  expect(feed.value.value).toBe(2);
});
