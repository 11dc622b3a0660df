import { createHash } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { hexOf, Sha256, sha256 } from "../../src/sha256.js";

const reference = (...parts: Uint8Array[]) => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex");
};

test("every length up to three blocks has the hash that Node computes", () => {
  for (let length = 0; length <= 192; length++) {
    const bytes = Uint8Array.from({ length }, (_, at) => (at * 31 + length) & 0xff);
    expect(hexOf(sha256(bytes)), `${length} bytes`).toBe(reference(bytes));
  }
});

test("pieces have the hash of the whole", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 8 }), (parts) => {
      const hash = new Sha256();
      for (const part of parts) hash.update(part);
      expect(hexOf(hash.digest())).toBe(reference(...parts));
    }),
    { seed: 1 },
  );
});

test("a part of a larger buffer is hashed as itself", () => {
  const whole = Uint8Array.from({ length: 300 }, (_, at) => at & 0xff);
  const part = whole.subarray(100, 250);
  expect(hexOf(sha256(part))).toBe(reference(part));
});
