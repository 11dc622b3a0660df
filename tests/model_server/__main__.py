"""Lives as JSON lines, for cores in other languages: `python -m tests.model_server`.

Each line of the input is a seed, each line of the output the life that follows from it: see
`tests.model_server.trace`.

    $ echo 7 | .venv/bin/python -m tests.model_server | node relive.mjs

`python -m tests.model_server --serve ASKED ANSWERED` puts the server itself in the hands of a test: see
`tests.model_server.scenes`.
"""

import sys
from pathlib import Path

from tests.model_server.scenes import serve
from tests.model_server.trace import relive


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*map(Path, sys.argv[2:]))
        return
    for line in sys.stdin:
        sys.stdout.buffer.write(relive(int(line)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
