import { defineConfig, type Plugin } from "vite";
import { shared } from "../ui/vite.js";

/** The SDK without its parts for files and notifications, what pages are made of and say, and what draws them. */
const BASE = /typescript\/src\/(?!files|push)|\/ui\/src\/|node_modules\/@?preact|strings\.en\.ts$/;

/** The service worker knows the files of its build. */
const files: Plugin = {
  name: "files",
  generateBundle(_, bundle) {
    const names = Object.keys(bundle).filter((name) => /^assets\/.+-[\w-]{8}\.(js|css)$/.test(name));
    const sw = bundle["sw.js"];
    if (sw?.type !== "chunk") throw new Error("there is no service worker");
    sw.code = sw.code.replace("__FILES__", JSON.stringify(names.sort().map((name) => `/${name}`)));
  },
};

export default defineConfig({
  ...shared,
  plugins: [...(shared.plugins ?? []), files],
  build: {
    ...shared.build,
    rolldownOptions: {
      input: { index: "index.html", sw: "src/sw.ts" },
      preserveEntrySignatures: "allow-extension",
      output: {
        // What the page needs at once is two files, whichever of the parts that load later share some of it.
        codeSplitting: { groups: [{ name: "base", test: BASE }] },
        entryFileNames: (chunk) => (chunk.name === "sw" ? "sw.js" : "assets/[name]-[hash].js"),
      },
    },
  },
});
