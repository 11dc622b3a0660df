import { defineConfig } from "vitest/config";

/** In a real Chromium, with a real server: tests/clients/test_browser.py says where they are. */
export default defineConfig({
  test: {
    include: ["test/browser/**/*.test.ts"],
    fileParallelism: false,
    testTimeout: 180_000,
    hookTimeout: 60_000,
  },
});
