"""The object stores under contract: a folder, and a real S3 server."""

import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from parley.archive.objects import ObstoreObjects, S3Settings, open_objects
from tests.services import s3_environment


def s3_settings() -> S3Settings:
    found = s3_environment()
    return S3Settings(
        endpoint=found["PARLEY_ARCHIVE_ENDPOINT"],
        region=found["PARLEY_ARCHIVE_REGION"],
        access_key_id=found["PARLEY_ARCHIVE_ACCESS_KEY_ID"],
        secret_access_key=found["PARLEY_ARCHIVE_SECRET_ACCESS_KEY"],
    )


def new_bucket() -> str:
    """The name of a bucket of this test's own, on the S3 server."""
    s3, bucket = s3_settings(), f"parley-{secrets.token_hex(6)}"
    url = f"{s3.endpoint}/{bucket}"
    signed = AWSRequest("PUT", url)
    credentials = Credentials(s3.access_key_id, s3.secret_access_key)
    S3SigV4Auth(credentials, "s3", s3.region).add_auth(signed)
    request = Request(url, method="PUT", headers=dict(signed.headers.items()))
    with urlopen(request, timeout=10) as answer:
        assert answer.status == 200
    return bucket


def in_folder(folder: Path) -> ObstoreObjects:
    return open_objects(str(folder / "cold"), S3Settings())


def in_s3(_: Path) -> ObstoreObjects:
    return open_objects(f"s3://{new_bucket()}/some/prefix", s3_settings())


OBJECT_STORES: dict[str, Callable[[Path], ObstoreObjects]] = {"folder": in_folder, "s3": in_s3}
