/**
 * A tab that ends at every step of the outbox's path, one after the other: whatever it awaits when it ends, what was
 * shown as kept is stored once, and in order.
 */

import { describe, expect, test } from "vitest";
import { History } from "./history.js";
import { type Tab, World } from "./world.js";

interface Scene {
  readonly world: World;
  readonly history: History;
  readonly token: string;
}

function scene(hasLocks = true): Scene {
  const world = new World({ hasLocks });
  const token = world.server.addPerson("ada");
  return { world, history: new History(world, world.server.addChat(["ada"])), token };
}

/** Two tabs write three messages each, in turns; the first may end on the way. */
async function writeTogether({ world, history }: Scene, first: Tab, second: Tab): Promise<void> {
  for (const number of [1, 2, 3]) {
    history.write(first, `first ${number}`);
    history.write(second, `second ${number}`);
    await world.run(2);
  }
  await world.until(() => history.isComplete, 120_000, "what was kept is stored");
  await world.run(20_000);
}

/** Open a tab that may end while it opens. */
async function openLater({ world, token }: Scene, crashAt: number): Promise<Tab> {
  const tab = await world.open({ token, crashAt });
  await world.run(50);
  return tab;
}

async function stepsWithout(crash: (crashAt: number) => Promise<{ steps: number }>): Promise<number> {
  return (await crash(Number.MAX_SAFE_INTEGER)).steps;
}

describe.each([
  { name: "the leader", hasLocks: true, first: true },
  { name: "a follower", hasLocks: true, first: false },
  { name: "the leader without Web Locks", hasLocks: false, first: true },
])("$name ends at every step", ({ hasLocks, first }) => {
  const play = async (crashAt: number): Promise<{ steps: number; kept: number }> => {
    const play = scene(hasLocks);
    let [crashing, other]: (Tab | undefined)[] = [];
    if (first) crashing = await openLater(play, crashAt);
    other = await play.world.open({ token: play.token });
    await play.world.run(50);
    crashing ??= await openLater(play, crashAt);
    await writeTogether(play, crashing, other);
    play.history.check(`step ${crashAt}`);
    return { steps: crashing.steps, kept: play.history.kept };
  };

  test("what was kept is stored once, in order", async () => {
    const steps = await stepsWithout(play);
    expect(steps).toBeGreaterThan(50);
    const kept = new Set<number>();
    for (let crashAt = 1; crashAt <= steps; crashAt++) kept.add((await play(crashAt)).kept);
    // The tab ended before, between and after its three messages.
    expect([...kept].sort()).toEqual([3, 4, 5, 6]);
  });
});

test("the only tab ends at every step, and the next one sends what was kept", async () => {
  const play = async (crashAt: number) => {
    const { world, history, token } = scene();
    world.server.cut({ isDown: true });
    const tab = await openLater({ world, history, token }, crashAt);
    for (const number of [1, 2, 3, 4, 5]) history.write(tab, `offline ${number}`);
    await world.run(1_000);
    world.server.up();
    await world.run(3_000);
    const steps = tab.steps;
    tab.crash();
    await world.open({ token });
    await world.until(() => history.isComplete, 120_000);
    await world.run(20_000);
    history.check(`step ${crashAt}`);
    return { steps, kept: history.kept };
  };
  const steps = await stepsWithout(play);
  const kept = new Set<number>();
  for (let crashAt = 1; crashAt <= steps; crashAt++) kept.add((await play(crashAt)).kept);
  // Nothing, the first batch alone, or all: a batch is one transaction.
  expect([...kept].sort()).toEqual([0, 1, 5]);
});
