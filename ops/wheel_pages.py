"""Puts the built pages into the wheel, and refuses to build one without them.

The source distribution has them, too, so that a wheel can be made of it without Node. An editable install
needs none: the server finds what a checkout builds.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CLIENTS = "clients"
PAGES = ("web", "console")


class PagesBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Named in pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for name in PAGES:
            folder = Path(self.root) / CLIENTS / name
            if not (folder / "dist/index.html").is_file():
                raise RuntimeError(f"{CLIENTS}/{name}/dist has no pages: run `make pages` first")
            inside = f"parley/pages/{name}" if self.target_name == "wheel" else f"{CLIENTS}/{name}/dist"
            build_data["force_include"][str(folder / "dist")] = inside
