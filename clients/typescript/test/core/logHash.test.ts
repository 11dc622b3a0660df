import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { Entry } from "../../src/contract.js";
import { afterEntry, afterVoid, bodyDigest, emptyLog, readShown, shown } from "../../src/core/logHash.js";

interface Vectors {
  readonly chat_id: string;
  readonly empty: string;
  readonly positions: readonly {
    readonly sequence: number;
    readonly entry: Entry | null;
    readonly log_hash: string;
    readonly body_digest?: string;
  }[];
}

const file = new URL("../../../../tests/wire_vectors/log_hash/positions.json", import.meta.url);
const vectors: Vectors = JSON.parse(readFileSync(file, "utf8"));

describe("the hash of a log", () => {
  it("is that of every vector, position by position", () => {
    let value = emptyLog(vectors.chat_id);
    expect(shown(value)).toBe(vectors.empty);
    for (const { sequence, entry, log_hash } of vectors.positions) {
      value = entry ? afterEntry(value, entry) : afterVoid(value, sequence);
      expect(shown(value), `at ${sequence}`).toBe(log_hash);
      expect(shown(readShown(log_hash))).toBe(log_hash);
    }
    expect(vectors.positions.length).toBeGreaterThan(10);
  });

  it("counts a body by its digest, or by the one that was kept", () => {
    const digests = vectors.positions.filter(({ body_digest }) => body_digest !== undefined);
    for (const { entry, body_digest } of digests) expect(entry && bodyDigest(entry)).toBe(body_digest);
    expect(digests.length).toBeGreaterThan(5);
  });
});
