import { readdirSync, readFileSync } from "node:fs";
import type { ClientFrame, Entry, ServerFrame } from "../src/contract.js";

/** The vectors that every SDK is held to. */
export const FOLDER = new URL("../../../tests/wire_vectors/", import.meta.url);

export interface Vector<Frame> {
  readonly name: string;
  readonly value: Frame;
  readonly json: string;
  readonly msgpack: string;
}

interface VectorFile<Frame> {
  readonly from: "client" | "server";
  readonly type: string;
  readonly vectors: readonly Vector<Frame>[];
}

export interface HashedPosition {
  readonly sequence: number;
  readonly entry: Entry | null;
  readonly log_hash: string;
  readonly body_digest?: string;
}

export interface HashedLog {
  readonly version: number;
  readonly chat_id: string;
  readonly empty: string;
  readonly positions: readonly HashedPosition[];
}

export const clientVectors = vectorsOf<ClientFrame>("client");
export const serverVectors = vectorsOf<ServerFrame>("server");
export const hashedLog: HashedLog = read("log_hash/positions.json");

function vectorsOf<Frame>(sender: "client" | "server"): Vector<Frame>[] {
  return readdirSync(FOLDER)
    .filter((name) => name.startsWith(`${sender}.`))
    .flatMap((name) => read<VectorFile<Frame>>(name).vectors);
}

function read<Content>(name: string): Content {
  return JSON.parse(readFileSync(new URL(name, FOLDER), "utf8")) as Content;
}
