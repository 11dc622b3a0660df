"""Files that messages refer to: where they are, and what takes care of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from parley.clock import MS_PER_HOUR, MS_PER_SECOND, Clock
from parley.config import Config
from parley.core.attachments import AttachmentRules
from parley.errors import ConfigError
from parley.files.downloads import Downloads
from parley.files.parts import FileParts
from parley.files.removal import FileRemoval
from parley.files.renditions import Renditions
from parley.files.rights import SessionCheck, UploadRights
from parley.files.service import FileService
from parley.files.signing import AddressSigner
from parley.files.uploads import Uploads
from parley.ids import Ids
from parley.objects.ports import Objects, S3Settings
from parley.objects.targets import S3_SCHEME, objects_at
from parley.records.attachments import Attachments
from parley.records.kinds import Kinds
from parley.records.server_keys import ServerKeys
from parley.sending.attaching import Attaching
from parley.store.ports import Engine
from parley.telemetry import Metrics
from parley.testing import faults

FOLDER = "attachments"
"""In the data folder of a server on one machine, if the configuration names no other place."""
KEY_BYTES = 32


def files_target(config: Config) -> str | None:
    """A folder as a path, or the address of a bucket; None if this server takes no files."""
    target = config.attachments.target
    if target.startswith(S3_SCHEME):
        return target
    if not target and config.store.is_shared:
        return None
    return str(Path(config.server.data) / (target or FOLDER))


def file_objects(config: Config, environment: Mapping[str, str]) -> Objects | None:
    """Where the bytes are. Connects to nothing. ConfigError if that can never be used."""
    target, files = files_target(config), config.attachments
    if target is None:
        return None
    s3 = S3Settings(
        endpoint=files.endpoint,
        region=files.region,
        access_key_id=files.access_key_id,
        secret_access_key=files.secret_access_key,
    )
    try:
        return objects_at(target, environment, s3)
    except ConfigError as error:
        raise ConfigError(f"attachments.target {target} cannot be used: {error}") from error


def file_parts(config: Config, environment: Mapping[str, str]) -> FileParts | None:
    """None if this server takes no files."""
    objects = file_objects(config, environment)
    return FileParts(objects) if objects is not None else None


def has_files_in_data(config: Config) -> bool:
    """Whether the bytes of files belong to the data folder, and to no other server."""
    target = files_target(config)
    if target is None or target.startswith(S3_SCHEME):
        return False
    return Path(target).absolute().is_relative_to(Path(config.server.data).absolute())


def make_removal(
    engine: Engine, config: Config, clock: Clock, metrics: Metrics, environment: Mapping[str, str]
) -> FileRemoval | None:
    """None if this server takes no files."""
    parts = file_parts(config, environment)
    if parts is None:
        return None
    return FileRemoval(
        Attachments(engine.records, clock),
        parts,
        engine.log,
        clock,
        metrics,
        unused_ms=config.attachments.unused_hours * MS_PER_HOUR,
        fault_point=faults.fault_point_from(environment),
    )


def make_attaching(
    engine: Engine, clock: Clock, metrics: Metrics, environment: Mapping[str, str]
) -> Attaching:
    return Attaching(
        Attachments(engine.records, clock), engine.log, clock, metrics, faults.fault_point_from(environment)
    )


def make_files(
    *,
    engine: Engine,
    kinds: Kinds,
    config: Config,
    clock: Clock,
    make_ids: Ids,
    metrics: Metrics,
    environment: Mapping[str, str],
    sessions: SessionCheck,
) -> FileService | None:
    """None if this server takes no files."""
    parts = file_parts(config, environment)
    removal = make_removal(engine, config, clock, metrics, environment)
    if parts is None or removal is None:
        return None
    files, rights = config.attachments, UploadRights(kinds.accounts, engine.directory, sessions)
    uploads = Uploads(
        files=Attachments(engine.records, clock),
        parts=parts,
        removal=removal,
        directory=engine.directory,
        rules=AttachmentRules(
            bytes_max=files.max_bytes,
            types_allowed=tuple(files.types_allowed),
            types_denied=tuple(files.types_denied),
        ),
        rights=rights,
        clock=clock,
        make_ids=make_ids,
        metrics=metrics,
        quota_bytes=files.bytes_per_user,
        upload_ms=files.upload_hours * MS_PER_HOUR,
        fault_point=faults.fault_point_from(environment),
    )
    downloads = Downloads(
        files=Attachments(engine.records, clock),
        parts=parts,
        removal=removal,
        directory=engine.directory,
        signer=AddressSigner(ServerKeys(engine.records), secrets.token_hex(KEY_BYTES)),
        rights=rights,
        clock=clock,
        metrics=metrics,
        address_ms=files.url_seconds * MS_PER_SECOND,
    )
    return FileService(uploads, downloads, removal, Renditions(downloads, uploads.decoder))
