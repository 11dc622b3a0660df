// Every file that the server sends, compressed beforehand: it picks the one that a browser takes.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const DIST = new URL("../dist/", import.meta.url);
const WORTH_IT = /\.(js|css|html|svg|webmanifest)$/;

for (const entry of readdirSync(DIST, { recursive: true })) {
  if (!WORTH_IT.test(entry)) continue;
  const bytes = readFileSync(new URL(entry, DIST));
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
  writeFileSync(new URL(`${entry}.gz`, DIST), gzipSync(bytes, { level: 9 }));
  writeFileSync(new URL(`${entry}.br`, DIST), brotliCompressSync(bytes, quality));
}
