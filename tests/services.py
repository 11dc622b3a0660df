"""The real services that tests run against, one of each for a whole run.

A test asks for what it needs, and is skipped (with `CI=true`: fails) where that cannot be started:

    endpoint = dynamodb_endpoint()     # tables in memory; credentials are in the environment
    host, port = cassandra_address()
    brokers = kafka_brokers()
    url = redis_url()
    target = s3_target()               # a prefix of its own in a bucket; endpoint and credentials as above
    prefix = fresh_prefix()            # a test's own tables, topics and keys: services are shared
    program = promtool_program()       # no service, and to be had in the same way, as is chromium_program()

Addresses given in the environment (`PARLEY_DYNAMODB_ENDPOINT` …) are used as they are. Otherwise a service
starts with the first test that asks for it, whichever process of the run that is in, or before all tests with
`--services`; it ends with the run, even with one that is killed.

A test that kills services has its own; these calls wait, so a coroutine makes them by `asyncio.to_thread`:

    with OwnServices(tmp_path) as services:
        services.up("kafka")
        services.kill("kafka")
        services.start("kafka")
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from ops.local_services import NAMES, ServiceError, ServiceSet, chromium, promtool
from ops.local_services.s3 import BUCKET as S3_BUCKET

FOLDER_VARIABLE = "PARLEY_TEST_SERVICES_FOLDER"
OWNER_VARIABLE = "PARLEY_TEST_SERVICES_OWNER"
ADDRESSES = {
    "cassandra": "PARLEY_CASSANDRA_CONTACT_POINTS",
    "dynamodb": "PARLEY_DYNAMODB_ENDPOINT",
    "kafka": "PARLEY_KAFKA_BROKERS",
    "redis": "PARLEY_REDIS_URL",
    "s3": "AWS_ENDPOINT_URL_S3",
}


def dynamodb_endpoint() -> str:
    """Where DynamoDB is. The credentials that it takes are put into the environment of this process."""
    variables = service_environment("dynamodb")
    _take_credentials(variables)
    return variables[ADDRESSES["dynamodb"]]


def _take_credentials(variables: dict[str, str]) -> None:
    for name, value in variables.items():
        if name.startswith("AWS_"):
            os.environ.setdefault(name, value)


def cassandra_address() -> tuple[str, int]:
    """Where Cassandra is: a host and a port."""
    variables = service_environment("cassandra")
    return variables[ADDRESSES["cassandra"]], int(variables["PARLEY_CASSANDRA_PORT"])


def kafka_brokers() -> list[str]:
    """The brokers to start from, as `host:port`."""
    return service_environment("kafka")[ADDRESSES["kafka"]].split(",")


def redis_url() -> str:
    """Where Redis is."""
    return service_environment("redis")[ADDRESSES["redis"]]


def s3_target() -> str:
    """A place in a bucket that no other test has. Endpoint and credentials are put into the environment."""
    _take_credentials(service_environment("s3"))
    return f"s3://{S3_BUCKET}/{fresh_prefix()}"


def promtool_program() -> Path:
    """Prometheus's own tool for rules, fetched like the services."""
    return _tool(promtool.NAME, promtool.program)


def chromium_program() -> Path:
    """A browser, fetched like the services."""
    return _tool(chromium.NAME, chromium.program)


@cache
def _tool(name: str, program: Callable[[Callable[[str], None]], Path]) -> Path:
    note, found = missing_note(name), None
    if not note.exists():
        try:
            found = program(lambda _: None)
        except ServiceError as failure:
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(str(failure), encoding="utf-8")
    if found is None:
        unavailable(name, note.read_text(encoding="utf-8"))
    return found


def fresh_prefix() -> str:
    """A name that no other test, and no other run on the same services, has."""
    return f"t{secrets.token_hex(5)}-"


@cache
def service_environment(name: str) -> dict[str, str]:
    """What the environment of a client, or of a node that a test starts, must hold to find a service."""
    if os.environ.get(ADDRESSES[name]):
        related = (f"PARLEY_{name.upper()}_", "AWS_")
        return {key: value for key, value in os.environ.items() if key.startswith(related)}
    note = missing_note(name)
    if not note.exists():
        start_shared([name])
    if note.exists():
        unavailable(name, note.read_text(encoding="utf-8"))
    return shared_services().environment(name)


class OwnServices(ServiceSet):
    """Services of one test, on its own folder: on disk, and killed at the end of the block or of the run."""

    def __init__(self, folder: Path, *, in_memory: bool = False) -> None:
        super().__init__(folder, in_memory=in_memory, owner=os.getpid())

    def up(self, *names: str) -> None:
        """Start these, or skip the test where they cannot be started."""
        for name, failure in self.try_up(*names).items():
            unavailable(name, str(failure))


def shared_services() -> ServiceSet:
    """The services of this run."""
    folder, owner = Path(os.environ[FOLDER_VARIABLE]), int(os.environ[OWNER_VARIABLE])
    return ServiceSet(folder, in_memory=True, owner=owner)


def start_shared(names: Sequence[str]) -> dict[str, ServiceError]:
    """Start what does not run yet, and leave a note for all processes of the run about what cannot."""
    failures = shared_services().try_up(*names)
    for name, failure in failures.items():
        missing_note(name).write_text(str(failure), encoding="utf-8")
    return failures


def missing_note(name: str) -> Path:
    return Path(os.environ[FOLDER_VARIABLE]) / f"{name}.missing"


def unavailable(name: str, reason: str) -> NoReturn:
    """A machine of a developer may lack a service; where changes are judged, nothing may be left out."""
    if in_ci():
        pytest.fail(f"{name} cannot be had: {reason}", pytrace=False)
    pytest.skip(f"{name} cannot be had: {reason}")


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


def is_owner() -> bool:
    """Whether this process is the run itself: not one of its workers, nor a run inside of a test."""
    return os.environ.get(OWNER_VARIABLE) == str(os.getpid())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--services", action="store_true", help="start all services before the first test")


def pytest_configure() -> None:
    """The first process of a run names the folder, and its workers inherit the name."""
    if OWNER_VARIABLE not in os.environ:
        name = f"parley-services-{os.getpid()}-{secrets.token_hex(4)}"
        os.environ[FOLDER_VARIABLE] = str(Path(tempfile.gettempdir()) / name)
        os.environ[OWNER_VARIABLE] = str(os.getpid())


def pytest_sessionstart(session: pytest.Session) -> None:
    if not (session.config.getoption("services") and is_owner()):
        return
    asked = [name for name in NAMES if not os.environ.get(ADDRESSES[name])]
    failures = start_shared(asked)
    if failures and in_ci():
        pytest.exit("\n".join(str(failure) for failure in failures.values()), returncode=1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly, at the end, what was not tried."""
    notes = {name: missing_note(name) for name in (*NAMES, promtool.NAME, chromium.NAME, "node")}
    missing = {name: note.read_text(encoding="utf-8") for name, note in notes.items() if note.exists()}
    if missing and is_owner():
        terminalreporter.section("SERVICES MISSING: what needs them was not tested", red=True)
        for name, reason in missing.items():
            terminalreporter.line(f"{name}: {reason}", red=True)


def pytest_unconfigure() -> None:
    if is_owner():
        shared_services().destroy()
        shutil.rmtree(os.environ[FOLDER_VARIABLE], ignore_errors=True)
