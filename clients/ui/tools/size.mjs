// Of the client whose folder this is run in: what a first visit loads, compressed: what index.html names, and what that imports before anything is done.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const KB = 1024;
/** What is wanted, and what stops a change. */
export const FIRST_LOAD = { wantedKb: 90, mostKb: 110, requestsMax: 8 };

export function firstLoad(folder = pathToFileURL(`${process.cwd()}/dist/`)) {
  const read = (name) => readFileSync(new URL(name, folder));
  const page = read("index.html").toString();
  const named = [...page.matchAll(/(?:src|href)="\/([^"]+)"/g)].map(([, name]) => name);
  const files = new Set(["index.html", ...named]);
  for (const name of files) {
    if (!name.endsWith(".js")) continue;
    for (const [, other] of read(name)
      .toString()
      .matchAll(/(?:^|[;}])import\s*(?:[^"'()]*?from\s*)?["']\.\/([^"']+)["']/g)) {
      files.add(`assets/${other}`);
    }
  }
  const sizes = Object.fromEntries(
    [...files].map((name) => [name, gzipSync(read(name), { level: 9 }).length]),
  );
  const bytes = Object.values(sizes).reduce((sum, size) => sum + size, 0);
  return { sizes, requests: files.size, kb: bytes / KB };
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { sizes, requests, kb } = firstLoad();
  for (const [name, size] of Object.entries(sizes))
    process.stdout.write(`${(size / KB).toFixed(1).padStart(7)} KB  ${name}\n`);
  process.stdout.write(`${kb.toFixed(1).padStart(7)} KB in ${requests} requests\n`);
  if (kb > FIRST_LOAD.mostKb || requests > FIRST_LOAD.requestsMax) process.exit(1);
}
