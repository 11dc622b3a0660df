/** How the pages of the chat and of the console are built: one way for both. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Plugin, UserConfig } from "vite";

const SDK = new URL("../typescript/src", import.meta.url).pathname;
const UI = new URL("src", import.meta.url).pathname;
/** While the pages are worked on: the server whose API they use. */
const SERVER = process.env.PARLEY_URL ?? "http://127.0.0.1:8080";

/** The theme is chosen before the first paint, by a script of its own: nothing is inline. */
function theme(): Plugin {
  const source = readFileSync(`${UI}/theme.js`, "utf8");
  const hash = createHash("sha256").update(source).digest("base64url").slice(0, 8);
  const fileName = `assets/theme-${hash}.js`;
  return {
    name: "theme",
    generateBundle() {
      this.emitFile({ type: "asset", fileName, source });
    },
    configureServer(server) {
      server.middlewares.use(`/${fileName}`, (_, answer) => answer.end(source));
    },
    transformIndexHtml: () => [{ tag: "script", attrs: { src: `/${fileName}` }, injectTo: "head-prepend" }],
  };
}

const proxy = { "/v1": { target: SERVER, ws: true } };

export const shared: UserConfig = {
  plugins: [theme()],
  resolve: {
    alias: [
      { find: /^parley-chat$/, replacement: `${SDK}/index.ts` },
      { find: /^parley-chat\/(\w+)$/, replacement: `${SDK}/$1.ts` },
      { find: /^parley-ui\/(.+)$/, replacement: `${UI}/$1` },
      { find: /^react\/jsx-runtime$/, replacement: "preact/jsx-runtime" },
      { find: /^react(-dom)?$/, replacement: "preact/compat" },
    ],
    // What `ui` imports is the page's own: it has no packages.
    dedupe: ["preact", "@preact/signals", "playwright-core"],
  },
  build: {
    target: "es2022",
    outDir: "dist",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  define: { __VERSION__: JSON.stringify(process.env.npm_package_version) },
  css: { modules: { generateScopedName: "[hash:base64:5]" } },
  server: { proxy },
  preview: { proxy },
};
