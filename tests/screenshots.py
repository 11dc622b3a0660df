"""Pictures of every page of the chat, light and dark, wide and narrow: `make screenshots`.

They are of a real server and its pages, in `screenshots/`. Nothing compares them: they are to be looked at.
"""

import sys

from ops.local_services import chromium
from tests.node import ROOT, WEB, build, node_tool

FOLDER = ROOT / "screenshots"
COMMAND = ROOT / ".venv/bin/parley"


def main() -> int:
    build(WEB)
    browser = chromium.program(lambda said: print(said, file=sys.stderr))
    env = {"CHROMIUM": str(browser), "PARLEY_COMMAND": str(COMMAND), "SCREENSHOTS": str(FOLDER)}
    done = node_tool("npm", "run", "screenshots", env=env, folder=WEB)
    print(done.stdout if done.returncode else f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
