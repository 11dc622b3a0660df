/**
 * SHA-256 in pieces, at once. `crypto.subtle` has none in pieces, none that is synchronous, and on plain http none at
 * all; and the hash of a log is computed entry by entry.
 */

const BLOCK_BYTES = 64;
const LENGTH_BYTES = 8;
const WORD = 2 ** 32;

export class Sha256 {
  readonly #state: Int32Array;
  readonly #block = new Uint8Array(BLOCK_BYTES);
  readonly #view = new DataView(this.#block.buffer);
  readonly #words = new Int32Array(BLOCK_BYTES);
  readonly #constants: Int32Array;
  #bytes = 0;

  constructor() {
    const { roots, cubeRoots } = constants();
    this.#state = roots.slice();
    this.#constants = cubeRoots;
  }

  update(bytes: Uint8Array): this {
    for (let at = 0; at < bytes.length; ) {
      const used = this.#bytes % BLOCK_BYTES;
      const piece = bytes.subarray(at, at + BLOCK_BYTES - used);
      this.#block.set(piece, used);
      this.#bytes += piece.length;
      at += piece.length;
      if (used + piece.length === BLOCK_BYTES) this.#mix();
    }
    return this;
  }

  /** Ends it: nothing may follow. */
  digest(): Uint8Array<ArrayBuffer> {
    const bits = this.#bytes * 8;
    const used = this.#bytes % BLOCK_BYTES;
    const isLong = used >= BLOCK_BYTES - LENGTH_BYTES;
    const padding = new Uint8Array((isLong ? 2 : 1) * BLOCK_BYTES - used);
    const end = new DataView(padding.buffer);
    padding[0] = 0x80;
    end.setUint32(padding.length - 8, bits / WORD);
    end.setUint32(padding.length - 4, bits);
    this.update(padding);
    const result = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, at) => {
      result.setInt32(at * 4, word);
    });
    return new Uint8Array(result.buffer);
  }

  #mix(): void {
    const [words, state, constants] = [this.#words, this.#state, this.#constants];
    for (let at = 0; at < 16; at++) words[at] = this.#view.getInt32(at * 4);
    for (let at = 16; at < 64; at++) {
      const before = twist(words[at - 15] as number, 7, 18, 3) + (words[at - 16] as number);
      words[at] = before + twist(words[at - 2] as number, 17, 19, 10) + (words[at - 7] as number);
    }
    // Destructuring a typed array asks an iterator, which takes longer than a round.
    const start = (at: number) => state[at] as number;
    let [a, b, c, d, e, f, g, h] = [
      start(0),
      start(1),
      start(2),
      start(3),
      start(4),
      start(5),
      start(6),
      start(7),
    ];
    for (let at = 0; at < 64; at++) {
      const round = (constants[at] as number) + (words[at] as number);
      const first = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + round;
      const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = (d + first) | 0;
      d = c;
      c = b;
      b = a;
      a = (first + second) | 0;
    }
    const after = [a, b, c, d, e, f, g, h];
    for (let at = 0; at < 8; at++) state[at] = start(at) + (after[at] as number);
  }
}

export const sha256 = (bytes: Uint8Array): Uint8Array<ArrayBuffer> => new Sha256().update(bytes).digest();

export const hexOf = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

const turn = (word: number, by: number): number => (word >>> by) | (word << (32 - by));

const twist = (word: number, one: number, other: number, shift: number): number =>
  turn(word, one) ^ turn(word, other) ^ (word >>> shift);

let known: { roots: Int32Array; cubeRoots: Int32Array } | undefined;

/** The first 32 bits behind the point of the square and the cube roots of the first primes. */
function constants(): { roots: Int32Array; cubeRoots: Int32Array } {
  if (known) return known;
  const primes: number[] = [];
  for (let number = 2; primes.length < 64; number++) {
    if (primes.every((prime) => number % prime)) primes.push(number);
  }
  const behindPoint = (root: number) => Math.floor((root % 1) * WORD) | 0;
  known = {
    roots: Int32Array.from(primes.slice(0, 8), (prime) => behindPoint(Math.sqrt(prime))),
    cubeRoots: Int32Array.from(primes, (prime) => behindPoint(Math.cbrt(prime))),
  };
  return known;
}
