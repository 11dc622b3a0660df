import { defineConfig } from "vitest/config";
import { shared } from "../ui/vite.js";

export default defineConfig({
  ...(shared.resolve && { resolve: shared.resolve }),
  test: { include: ["test/unit/**/*.test.{ts,tsx}"], maxWorkers: 2 },
});
