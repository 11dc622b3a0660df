import { defineConfig } from "vitest/config";
import { shared } from "../ui/vite.js";

/** Not a test: it takes pictures, of pages that were built. */
export default defineConfig({
  ...(shared.resolve && { resolve: shared.resolve }),
  test: { include: ["test/screenshots/*.test.ts"], testTimeout: 600_000, maxWorkers: 1 },
});
