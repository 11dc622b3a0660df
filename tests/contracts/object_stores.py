"""The object stores under contract: a folder, and a real S3 server."""

import os
from collections.abc import Callable
from pathlib import Path

from parley.archive.objects import ObstoreObjects, S3Settings, open_objects
from tests.services import s3_target


def in_folder(folder: Path) -> ObstoreObjects:
    return open_objects(str(folder / "cold"), S3Settings())


def in_s3(_: Path) -> ObstoreObjects:
    target = s3_target()
    s3 = S3Settings(
        endpoint=os.environ["AWS_ENDPOINT_URL_S3"],
        region=os.environ["AWS_REGION"],
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    )
    return open_objects(target, s3)


OBJECT_STORES: dict[str, Callable[[Path], ObstoreObjects]] = {"folder": in_folder, "s3": in_s3}
