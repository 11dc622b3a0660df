"""Pictures of every page of the chat and of the console, light and dark, wide and narrow: `make screenshots`.

They are of a real server and its pages, in `screenshots/`. Nothing compares them: they are to be looked at.
"""

import sys

from ops.local_services import chromium
from tests.node import CONSOLE, ROOT, WEB, build, node_tool

FOLDER = ROOT / "screenshots"
COMMAND = ROOT / ".venv/bin/parley"


def main() -> int:
    browser = chromium.program(lambda said: print(said, file=sys.stderr))
    env = {"CHROMIUM": str(browser), "PARLEY_COMMAND": str(COMMAND), "SCREENSHOTS": str(FOLDER)}
    for folder in (WEB, CONSOLE):
        build(folder)
        done = node_tool("npm", "run", "screenshots", env=env, folder=folder)
        if done.returncode:
            print(done.stdout)
            return done.returncode
    print(f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
