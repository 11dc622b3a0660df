/** The audit log: filtered, and taken away as a file. */

import { readFile } from "node:fs/promises";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { goTo, type Somebody, World } from "./world.js";

let world: World;
let olga: Somebody;
let ada: Somebody;
beforeAll(async () => {
  world = await World.open();
  olga = await world.server.operator("olga", "Olga");
  ada = await world.server.person("ada", "Ada");
  for (const action of ["disable", "enable"]) {
    await world.server.call(olga.token, "POST", `/v1/admin/users/${ada.userId}/${action}`);
  }
  const body = { name: '=HYPERLINK("http://evil.example","x"), "quoted"', scopes: ["read"] };
  await world.server.call(olga.token, "POST", "/v1/admin/tokens", body);
});
afterEach(() => world.leave());
afterAll(() => world.close());

test("it is filtered, and the address says how", async () => {
  const page = await world.console(olga);
  await goTo(page, "Audit");
  const table = page.getByRole("table", { name: "Audit" });
  await table.getByText("token.make").waitFor();
  await page.getByRole("searchbox", { name: "Action" }).fill("user.disable");
  await page.getByRole("button", { name: "Apply" }).click();
  await table.getByText("token.make").waitFor({ state: "detached" });
  await table.getByText("user.disable").waitFor();
  expect(await table.getByRole("row").count()).toBe(2);
  const line = table.getByRole("row").nth(1);
  expect(await line.getByRole("link", { name: ada.userId }).getAttribute("href")).toBe(
    `#/person/${ada.userId}`,
  );
  expect(await line.getByText("done").count()).toBe(1);
  expect(page.url()).toContain("#/audit?action=user.disable");
  await page.reload();
  await table.getByText("user.disable").waitFor();
  expect(await table.getByRole("row").count()).toBe(2);
  await page.getByRole("textbox", { name: "Before" }).or(page.getByLabel("Before")).fill("2020-01-01");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByText("Nothing like this was recorded.").waitFor();
});

test("what is filtered leaves as a file, and a spreadsheet runs nothing of it", async () => {
  const page = await world.console(olga, "#/audit?action=token.make");
  await page.getByRole("table", { name: "Audit" }).getByText("token.make").waitFor();
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export CSV" }).click();
  const download = await downloading;
  expect(download.suggestedFilename()).toBe("parley-audit.csv");
  const lines = (await readFile(await download.path(), "utf8")).split("\r\n");
  expect(lines[0]).toBe(
    "\ufeffat,actor,action,target_id,outcome,detail,request_id,token_id,token_name,audit_id",
  );
  expect(lines).toHaveLength(3);
  expect(lines[1]).toContain(`,${olga.userId},token.make,${olga.userId},done,`);
  expect(lines[1]).toContain('=HYPERLINK(""http://evil.example"",""x""), ""quoted""');
  await page.getByRole("status", { name: "Export CSV" }).getByText("1 record exported.").waitFor();
});
