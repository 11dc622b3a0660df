"""Pages as a build leaves them, small enough to look at."""

import gzip
from pathlib import Path

SCRIPT = "assets/main-Abc_1234.js"
CODE = "console.log('the chat');\n" * 100
PAGES = {
    "web": {
        "index.html": "<!doctype html><title>chat</title>",
        "sw.js": "self.skip = 1",
        "manifest.webmanifest": "{}",
        SCRIPT: CODE,
        "assets/icon.svg": "<svg/>",
        "assets/notes.md": "not for browsers",
    },
    "console": {"index.html": "<!doctype html><title>console</title>", "assets/ops-0123abcd.css": "a{}"},
}


def build_pages(folder: Path) -> None:
    """Each in a folder of its name, with what was compressed beside it."""
    for name, written in PAGES.items():
        for place, text in written.items():
            path = folder / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    (folder / "web" / f"{SCRIPT}.gz").write_bytes(gzip.compress(CODE.encode()))
    (folder / "web" / f"{SCRIPT}.br").write_bytes(b"as brotli")
