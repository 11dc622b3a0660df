"""Lives as JSON lines, for cores in other languages: `python -m tests.model_server`.

Each line of the input is a seed, each line of the output the life that follows from it: see
`tests.model_server.trace`.

    $ echo 7 | .venv/bin/python -m tests.model_server | node relive.mjs
"""

import sys

from tests.model_server.trace import relive


def main() -> None:
    for line in sys.stdin:
        sys.stdout.buffer.write(relive(int(line)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
