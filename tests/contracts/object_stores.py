"""The object stores under contract: a folder, and a real S3 server."""

import os
from collections.abc import Callable
from pathlib import Path

from parley.objects.ports import Objects
from parley.objects.targets import objects_at
from tests.services import s3_target


def in_folder(folder: Path) -> Objects:
    return objects_at(str(folder / "cold"), os.environ)


def in_s3(_: Path) -> Objects:
    return objects_at(s3_target(), os.environ)


OBJECT_STORES: dict[str, Callable[[Path], Objects]] = {"folder": in_folder, "s3": in_s3}
