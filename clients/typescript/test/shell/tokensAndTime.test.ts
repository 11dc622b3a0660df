/** Tokens that run out, and machines that sleep. */

import { expect, test } from "vitest";
import { thisPlatform } from "../../src/platform.js";
import { Tokens } from "../../src/tokens.js";
import { History } from "./history.js";
import { type Tab, World } from "./world.js";

/** A token that says itself when it ends, as JSON Web Tokens do. */
function endingToken(world: World, seconds: number): string {
  const payload = btoa(JSON.stringify({ exp: world.wall() / 1000 + seconds }));
  return `${btoa("{}")}.${payload}.signature`;
}

function adasWorld() {
  const world = new World();
  const token = world.server.addPerson("ada");
  const chatId = world.server.addChat(["ada"]);
  return { world, token, chatId, history: new History(world, chatId) };
}

test("a token that runs out offline is replaced before the next connection", async () => {
  const { world, history } = adasWorld();
  const given: string[] = [];
  const token = async () => {
    const fresh = world.server.addToken("ada");
    given.push(fresh);
    return fresh;
  };
  const tab = await world.open({ token });
  await world.until(() => tab.client.isOnline);
  world.server.cut({ isDown: true });
  for (const old of given) world.server.endToken(old);
  history.write(tab, "written offline");
  await world.run(3_600_000);
  for (const old of given) world.server.endToken(old);
  world.server.up();
  await world.until(() => history.isComplete && tab.client.unsent.length === 0, 120_000);
  history.check("offline");
  expect(tab.client.failure).toBeNull();
});

test("a token function that fails for a while is asked again", async () => {
  const { world, history } = adasWorld();
  let fails = 3;
  const token = async () => {
    fails -= 1;
    if (fails >= 0) throw new Error("the login is down");
    return world.server.addToken("ada");
  };
  const tab = await world.open({ token });
  history.write(tab, "hi");
  await world.until(() => history.kept === 1 && history.isComplete, 60_000);
  expect(fails).toBeLessThan(0);
});

test("a token that is not good ends the client and keeps what waits for the next one", async () => {
  const { world, token, history } = adasWorld();
  const tab = await world.open({ token: "prl_wrong" });
  history.write(tab, "hi");
  await world.until(() => tab.client.failure !== null, 60_000);
  expect(tab.client.failure).toMatchObject({ name: "BadToken" });
  const next = await world.open({ token });
  await world.until(() => next.client.isOnline && history.isComplete);
  history.check("after another login");
});

test("a connection sends a new token before the last one runs out", async () => {
  const { world } = adasWorld();
  let asked = 0;
  const token = async () => {
    asked += 1;
    const token = endingToken(world, 600);
    world.server.addToken("ada", null, token);
    return token;
  };
  const tab = await world.open({ token });
  await world.run(3_600_000);
  expect(tab.client.isOnline).toBe(true);
  expect(world.server.welcomed).toBe(1);
  expect(asked).toBe(1 + Math.floor(3_600 / (600 - 60)));
  expect(world.server.received.filter((frame) => frame.type === "refresh")).toHaveLength(asked - 1);
});

test("a machine that slept finds out within five seconds that its connection is dead", async () => {
  const { world, token } = adasWorld();
  const tab = await world.open({ token });
  await world.until(() => tab.client.isOnline);
  for (const connection of world.server.connections) connection.goSilent();
  tab.page("wake");
  await world.until(() => world.server.welcomed === 2 && tab.client.isOnline, 5_100);
});

test("a client that waits to try again tries at once when the network is back", async () => {
  const { world, token } = adasWorld();
  const tab = await world.open({ token });
  await world.until(() => tab.client.isOnline);
  world.server.cut({ isDown: true });
  await world.run(600_000);
  world.server.up();
  tab.page("wake");
  await world.until(() => tab.client.isOnline, 100);
});

test("a clock that jumps by a year in any direction loses and doubles nothing", async () => {
  for (const jump of [365 * 86_400_000, -365 * 86_400_000]) {
    const { world, token, chatId, history } = adasWorld();
    const tab = await world.open({ token });
    await world.until(() => tab.client.isOnline);
    world.server.cut({ isDown: true });
    history.write(tab, "one");
    history.write(tab, "two");
    await world.run(1_000);
    world.wallAt += jump;
    world.server.up();
    await world.until(() => world.server.log(chatId).length === 2, 120_000);
    await world.run(70_000);
    history.check(`a jump of ${jump}`);
  }
});

test("a lease that was written before the clock was set back keeps nobody from leading", async () => {
  const world = new World({ hasLocks: false });
  const token = world.server.addPerson("ada");
  const chatId = world.server.addChat(["ada"]);
  const leader = await world.open({ token });
  // One that nobody looks at takes no lead from another: it waits for the lease.
  const other = await world.open({ token, isVisible: false });
  await world.until(() => other.client.isOnline);
  world.wallAt -= 365 * 86_400_000;
  leader.crash();
  await world.result(other.client.chat(chatId).send("hi").stored, 60_000);
  expect(other.client.isLeader).toBe(true);
});

test("a token function that never answers is asked again", async () => {
  const { world, token } = adasWorld();
  let asked = 0;
  const stuck = () => {
    asked += 1;
    return asked === 1 ? new Promise<string>(() => {}) : Promise.resolve(token);
  };
  const tab = await world.open({ token: stuck });
  await world.until(() => tab.client.isOnline, 60_000);
  expect(asked).toBe(2);
});

test("tabs ask for a token one after the other, and a frozen one holds up none for long", async () => {
  const { world, token } = adasWorld();
  let [underWay, most] = [0, 0];
  const slow = async () => {
    underWay += 1;
    most = Math.max(most, underWay);
    await new Promise<void>((resolve) => void world.after(2_000, resolve));
    underWay -= 1;
    return token;
  };
  const tabs: Tab[] = [];
  for (let count = 0; count < 3; count++) {
    tabs.push(await world.open({ token: slow, connect: { tabs: false } }));
  }
  await world.until(() => tabs.every((tab) => tab.client.isOnline), 30_000);
  expect(most).toBe(1);
  world.server.cut();
  await world.run(2_000);
  tabs[0]?.freeze({ isTold: false });
  await world.until(() => tabs.slice(1).every((tab) => tab.client.isOnline), 60_000);
});

test("a request that is refused late takes the token that another has asked for since", async () => {
  const given = ["second", "third"];
  const tokens = new Tokens(async () => given.shift() ?? "none", { ...thisPlatform(), locks: null }, "ada");
  const [one, other] = [tokens.another(""), tokens.another("")];
  expect(await Promise.all([one, other])).toEqual(["second", "second"]);
  expect(await tokens.another("first")).toBe("second");
  expect(await tokens.another("second")).toBe("third");
});
