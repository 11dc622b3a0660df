/**
 * Two to five tabs on one database, and everything that happens to tabs, by seeds: they write, crash, freeze with and
 * without a word, thaw, are looked at or not, open; the network breaks; the clock jumps; two lead at once.
 */

import { describe, expect, test } from "vitest";
import { History } from "./history.js";
import { dice, type Tab, World } from "./world.js";

const WALKS = Number(process.env.PARLEY_WALKS ?? 40);
const FIRST = Number(process.env.PARLEY_WALKS_FIRST ?? 1);
const STEPS = 40;

async function walk(seed: number): Promise<void> {
  const world = new World({ seed, hasLocks: seed % 3 !== 0 });
  const chance = dice(seed ^ 0x5eed);
  const pick = <One>(all: readonly One[]): One | undefined => all[Math.floor(chance() * all.length)];
  const token = world.server.addPerson("ada");
  const history = new History(world, world.server.addChat(["ada"]));
  const frozen = new Set<Tab>();
  const running = () => world.tabs.filter((tab) => !tab.isDead && !frozen.has(tab));
  let written = 0;
  const acts: Record<string, () => unknown> = {
    write() {
      const tab = pick(running());
      for (let count = 1 + Math.floor(chance() * 3); tab && count > 0; count--)
        history.write(tab, `text ${++written}`);
    },
    async open() {
      if (world.tabs.filter((tab) => !tab.isDead).length < 5)
        await world.open({ token, isVisible: chance() < 0.5 });
    },
    crash() {
      if (running().length > 1) pick(running())?.crash();
    },
    freeze() {
      const tab = running().length > 1 ? pick(running()) : undefined;
      tab?.freeze({ isTold: chance() < 0.5 });
      if (tab) frozen.add(tab);
    },
    thaw() {
      const tab = pick([...frozen]);
      if (tab) frozen.delete(tab);
      tab?.thaw();
    },
    look() {
      const tab = pick(running());
      if (!tab) return;
      tab.isVisible = !tab.isVisible;
      if (tab.isVisible) tab.page("wake");
    },
    rob: () => world.locks.rob(),
    cut: () => world.server.cut({ isDown: chance() < 0.5 }),
    up: () => world.server.up(),
    clock() {
      world.wallAt += Math.floor((chance() - 0.5) * 7_200_000);
    },
    wait: () => world.run(chance() * 8_000),
  };
  const names = Object.keys(acts);
  await world.open({ token });
  for (let step = 0; step < STEPS; step++) {
    await acts[chance() < 0.4 ? "write" : (pick(names) as string)]?.();
    await world.run(chance() * 50);
  }
  world.server.up();
  for (const tab of frozen) tab.thaw();
  const last = await world.open({ token });
  last.page("wake");
  await world.until(() => history.isComplete, 300_000, "what was kept is stored");
  await world.run(70_000);
  history.check(`seed ${seed}`);
  expect(world.server.connections.size, `seed ${seed}: connections`).toBe(1);
  const alive = world.tabs.filter((tab) => !tab.isDead);
  expect(
    alive.filter((tab) => tab.client.isLeader),
    `seed ${seed}: leaders`,
  ).toHaveLength(1);
  for (const tab of alive)
    expect(tab.client.unsent, `seed ${seed}: every tab knows the outcomes`).toEqual([]);
}

describe("whatever happens to tabs, what was kept is stored once, in order", () => {
  test.each(Array.from({ length: WALKS }, (_, walk) => FIRST + walk))("seed %i", walk, 60_000);
});
