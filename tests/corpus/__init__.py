"""Input that a server once met badly, or that looks as if it might; every run sends all of it again.

A file is one input, as bytes. Its folder says where it goes, its ending how: a frame is a `.text` or
`.binary` message, or `.raw` bytes on the socket; a request over HTTP is `.http`; the body of a call between
nodes has the last word of its path, `.append` or `.notices`; the value of a record in Kafka is an `.event`.
The ids and the token of the wire vectors stand for real ones.

A fuzzer that finds something names the input: put it here, under a name that says what was wrong.
"""

from pathlib import Path

FOLDER = Path(__file__).parent


def cases(kind: str) -> dict[str, bytes]:
    """The inputs of one kind, by file name."""
    return {
        path.name: path.read_bytes()
        for path in sorted((FOLDER / kind).iterdir())
        if path.is_file() and not path.name.startswith(".")
    }
