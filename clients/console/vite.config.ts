import { defineConfig } from "vite";
import { shared } from "../ui/vite.js";

/** What pages are made of is one file, however many of them share which part. */
const PARTS = /clients\/(console\/src\/(app|parts)|ui\/src)\//;

export default defineConfig({
  ...shared,
  build: {
    ...shared.build,
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "parts", test: PARTS }] } } },
  },
});
