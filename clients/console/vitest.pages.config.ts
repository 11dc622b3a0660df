import { defineConfig } from "vitest/config";
import { shared } from "../ui/vite.js";

/** In Chromium, on a real server: `npm run build` first. */
export default defineConfig({
  ...(shared.resolve && { resolve: shared.resolve }),
  test: {
    include: ["test/pages/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 1,
    testTimeout: 90_000,
    hookTimeout: 60_000,
  },
});
