"""Write the vectors anew: `python -m tests.wire_vectors.write`.

One file per frame type and direction, `client.<type>.json` and `server.<type>.json`:

    {"from": "client", "type": "ack", "vectors": [{"name": …, "value": {…}, "json": "…", "msgpack": "hex"}]}

`value` is the frame as a plain object, `json` and `msgpack` are its exact bytes. An SDK in any language
decodes both into `value`; one that writes fields in the same order can compare the bytes as well.

`log_hash/positions.json` has a small log and the hash at each of its positions: docs/PROTOCOL.md defines it.
"""

import json
from pathlib import Path

import msgspec

from parley.core import log_hash
from parley.wire.codec import JSON, MSGPACK
from tests.wire_vectors.examples import CHAT, HASHED_LOG, REQUESTS, answers

FOLDER = Path(__file__).resolve().parent
HASH_FILE = "log_hash/positions.json"

Vector = dict[str, object]


def request_vectors() -> list[tuple[str, Vector]]:
    return [
        vector(name, msgspec.json.encode(request), msgspec.msgpack.encode(request))
        for name, request in REQUESTS.items()
    ]


def answer_vectors() -> list[tuple[str, Vector]]:
    as_json, as_msgpack = answers(JSON), answers(MSGPACK)
    return [
        vector(name, JSON.encode(frame), MSGPACK.encode(as_msgpack[name])) for name, frame in as_json.items()
    ]


def vector(name: str, as_json: bytes, as_msgpack: bytes) -> tuple[str, Vector]:
    """The type of a frame, and its vector."""
    value = json.loads(as_json)
    return value["type"], {
        "name": name,
        "value": value,
        "json": as_json.decode(),
        "msgpack": as_msgpack.hex(),
    }


def files() -> dict[str, str]:
    """The text of every file, by name."""
    grouped: dict[tuple[str, str], list[Vector]] = {}
    for sender, vectors in (("client", request_vectors()), ("server", answer_vectors())):
        for kind, made in vectors:
            grouped.setdefault((sender, kind), []).append(made)
    return {
        f"{sender}.{kind}.json": json.dumps({"from": sender, "type": kind, "vectors": made}, indent=2) + "\n"
        for (sender, kind), made in grouped.items()
    }


def hash_vectors() -> str:
    """A log, position by position, with its hashes; a void has no entry."""
    at = log_hash.empty_log(CHAT)
    empty, positions = log_hash.shown(at), []
    for sequence, entry in enumerate(HASHED_LOG, 1):
        at = log_hash.after_void(at, sequence) if entry is None else log_hash.after_entry(at, entry)
        position: Vector = {"sequence": sequence, "entry": None, "log_hash": log_hash.shown(at)}
        if entry is not None:
            position["entry"] = json.loads(msgspec.json.encode(entry))
            position["body_digest"] = log_hash.body_digest(entry)
        positions.append(position)
    log = {"version": log_hash.VERSION, "chat_id": CHAT, "empty": empty, "positions": positions}
    return json.dumps(log, indent=2) + "\n"


def main() -> None:
    (FOLDER / HASH_FILE).parent.mkdir(exist_ok=True)
    (FOLDER / HASH_FILE).write_text(hash_vectors(), encoding="ascii")
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
