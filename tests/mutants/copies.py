"""Copies of the tree: faults are planted there and never where somebody works."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.faults import ROOT, Fault

LEFT_OUT = (".git", ".venv", ".*_cache", ".hypothesis", "data", "*.egg-info", "node_modules")


class Copy:
    """One tree, for one run at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """The fault is in the copy until the end of the block."""
        path = self.folder / fault.file
        original = path.read_text(encoding="utf-8")
        self._write(path, fault.planted_in(original))
        try:
            yield
        finally:
            self._write(path, original)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Python compares compiled files by second and size: a change of few letters must not be missed."""
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def module_of(fault: Fault) -> str:
    """The module that a file of the sources is; nothing for a file of another kind."""
    path = Path(fault.file)
    if path.suffix != ".py" or path.parts[0] != "src":
        return ""
    parts = path.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
