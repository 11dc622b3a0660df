import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.{ts,tsx}"],
    exclude: ["test/package/**", "test/browser/**"],
    pool: "threads",
    maxWorkers: 2,
    testTimeout: 30_000,
    fakeTimers: { toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] },
  },
});
