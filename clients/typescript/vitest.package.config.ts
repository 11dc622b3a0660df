import { defineConfig } from "vitest/config";

/** What is published, out of `dist`: `npm run test:package` builds it first. */
export default defineConfig({
  test: { include: ["test/package/**/*.test.ts"], pool: "threads", maxWorkers: 2, testTimeout: 60_000 },
});
