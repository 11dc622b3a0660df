"""Builds the pages that the server shows in a browser, if Node is there: `python -m ops.pages`.

Without Node, or if a build fails, it says so and goes on: a server runs without pages, too.
"""

import sys

from ops.node_builds import PAGES, build, compress, why_not


def main() -> int:
    """`--required`: without pages it fails."""
    failed = 1 if "--required" in sys.argv else 0
    if reason := why_not():
        print(f"The pages for the browser are not built: {reason}.", file=sys.stderr)
        return failed
    for folder in PAGES:
        try:
            build(folder)
            compress(folder)
        except (OSError, RuntimeError) as error:
            print(f"The pages of clients/{folder.name} are not built: {error}", file=sys.stderr)
            return failed
    return 0


if __name__ == "__main__":
    sys.exit(main())
