import { defineConfig } from "vite";
import { shared } from "../ui/vite.js";

export default defineConfig({
  ...shared,
  build: {
    ...shared.build,
    rolldownOptions: {
      input: { index: "index.html", sw: "src/sw.ts" },
      preserveEntrySignatures: "allow-extension",
      output: { entryFileNames: (chunk) => (chunk.name === "sw" ? "sw.js" : "assets/[name]-[hash].js") },
    },
  },
});
