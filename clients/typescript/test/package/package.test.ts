import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { expect, test } from "vitest";
import { FOLDER } from "./bundle.js";

const run = promisify(execFile);
const manifest = JSON.parse(await readFile(join(FOLDER, "package.json"), "utf8"));

test("publint finds nothing, suggestions included", async () => {
  const { messages } = await publint({ pkgDir: FOLDER, strict: true });
  expect(messages.map((one) => formatMessage(one, manifest))).toEqual([]);
});

test("TypeScript finds the types of every entry, in Node and with bundlers", async () => {
  const attw = join(FOLDER, "node_modules/.bin/attw");
  const words = ["--pack", FOLDER, "--profile", "esm-only", "--format", "json", "--no-definitely-typed"];
  const { stdout } = await run(attw, words, { cwd: FOLDER });
  const { analysis } = JSON.parse(stdout);
  for (const entry of Object.keys(manifest.exports).filter((name) => !name.endsWith(".json"))) {
    for (const mode of ["node16-esm", "bundler"]) {
      const found = analysis.entrypoints[entry].resolutions[mode];
      expect(found.resolution?.isTypeScript, `${entry} ${mode}`).toBe(true);
    }
  }
});

test("nothing but what is built is published", async () => {
  const { stdout } = await run("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: FOLDER });
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  const others = files.map((file) => file.path).filter((path) => !path.startsWith("dist/"));
  expect(others.sort()).toEqual(["README.md", "package.json"]);
  expect(files.filter((file) => !/\.(d\.ts|js)$/.test(file.path) && file.path.startsWith("dist/"))).toEqual(
    [],
  );
});
