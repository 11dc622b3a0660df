"""The object store that a target names: a folder, or `s3://bucket/prefix`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from parley.errors import ConfigError
from parley.objects.folder import FolderObjects
from parley.objects.ports import Objects, S3Settings

S3_SCHEME = "s3://"


def objects_at(target: str, environment: Mapping[str, str], settings: S3Settings | None = None) -> Objects:
    """Connects to nothing. ConfigError for an address of another kind. obstore is needed for S3 alone."""
    if "://" not in target:
        return FolderObjects(Path(target))
    parts = urlsplit(target)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"{target} is neither a folder nor s3://bucket/prefix")
    from parley.objects.s3 import S3Objects

    return S3Objects(parts.netloc, parts.path, environment, settings or S3Settings())
