// Puts a .gz and a .br beside each file of a folder that is smaller so: the server sends them as they are.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { extname, join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const [folder] = process.argv.slice(2);
const TEXT = new Set([".css", ".html", ".js", ".json", ".svg", ".webmanifest"]);
const WAYS = {
  ".gz": (data) => gzipSync(data, { level: constants.Z_BEST_COMPRESSION }),
  ".br": (data) => brotliCompressSync(data, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: data.length } }),
};

for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !TEXT.has(extname(entry.name))) continue;
  const path = join(entry.parentPath ?? entry.path, entry.name);
  const data = readFileSync(path);
  for (const [suffix, compress] of Object.entries(WAYS)) {
    const small = compress(data);
    if (small.length < data.length) writeFileSync(path + suffix, small);
  }
}
