import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

export const FOLDER = fileURLToPath(new URL("../../", import.meta.url));
export const KB = 1024;

/** What an application has to bring itself. */
const PEERS = ["react", "ws"];

/** An application that is just this code, as a bundler writes it for browsers: a module, or a script. */
export async function bundled(code: string, format: "esm" | "iife" = "esm"): Promise<string> {
  const made = await build({
    stdin: { contents: code, resolveDir: FOLDER },
    bundle: true,
    minify: true,
    write: false,
    format,
    platform: "browser",
    target: "es2022",
    external: PEERS,
    logLevel: "silent",
  });
  return made.outputFiles.map((file) => file.text).join("");
}

/** How many bytes of it travel. */
export function gzipped(text: string): number {
  return gzipSync(text, { level: 9 }).length;
}
