import { defineConfig } from "vitest/config";

/** Not a test: it takes pictures, of pages that were built. */
export default defineConfig({
  test: { include: ["test/screenshots/*.test.ts"], testTimeout: 600_000, maxWorkers: 1 },
});
