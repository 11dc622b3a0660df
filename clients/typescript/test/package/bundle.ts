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

export interface Weights {
  /** What a page must have before it can begin: the file of the application, and those that it imports. */
  readonly atOnce: number;
  /** What is loaded behind that. */
  readonly later: number;
}

/** How many bytes of an application travel, in files as a bundler splits it. */
export async function weights(code: string): Promise<Weights> {
  const made = await build({
    stdin: { contents: code, resolveDir: FOLDER },
    bundle: true,
    splitting: true,
    minify: true,
    metafile: true,
    write: false,
    outdir: FOLDER,
    absWorkingDir: FOLDER,
    format: "esm",
    platform: "browser",
    target: "es2022",
    external: PEERS,
    logLevel: "silent",
  });
  const files = new Map(made.outputFiles.map((file) => [file.path.slice(FOLDER.length), gzipped(file.text)]));
  const first = Object.keys(made.metafile.outputs).find((name) => name.startsWith("stdin"));
  const needed = new Set([first ?? ""]);
  for (const name of needed) {
    for (const { path, kind } of made.metafile.outputs[name]?.imports ?? []) {
      if (kind === "import-statement" && files.has(path)) needed.add(path);
    }
  }
  const weight = (are: boolean): number =>
    [...files].reduce((sum, [name, bytes]) => sum + (needed.has(name) === are ? bytes : 0), 0);
  return { atOnce: weight(true), later: weight(false) };
}
