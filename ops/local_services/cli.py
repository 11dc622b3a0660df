"""The verbs of `ops/services`."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ops.local_services import chromium, promtool
from ops.local_services.cache import VARIABLE, cache_folder
from ops.local_services.faults import ServiceError
from ops.local_services.instance import Status
from ops.local_services.service import Service
from ops.local_services.service_set import ENV_NAME, NAMES, ServiceSet, chosen

TOOLS = {tool.NAME: tool for tool in (promtool, chromium)}
"""Programs that are fetched like the services, and are none."""
DATA_DEFAULT = Path(__file__).resolve().parents[2] / "data" / "services"
HELP = {
    "up": "start services and wait until they are ready",
    "down": "stop services; their data stays",
    "status": "show which services run, where, and how much memory they use",
    "reset": "stop services, delete their data, start them again",
    "kill": "kill -9, as a crash would",
    "start": "start killed or stopped services, on the same ports and data",
    "fetch": "only fetch the programs into the cache",
    "guard": "wait until a process ends, then kill all services and delete their data",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Returns 0, or 1 after printing to stderr what is wrong."""
    options = parse(arguments)
    services = ServiceSet(
        options.data, in_memory=options.memory, owner=options.owner, env_file=options.env, say=say
    )
    try:
        run(services, options)
    except ServiceError as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"{error.strerror}: {error.filename}." if error.filename else f"{error}.")
    except KeyboardInterrupt:
        return fail("Interrupted; `ops/services status` shows what runs.")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ops/services",
        description="Cassandra, Kafka, DynamoDB Local, Redis and S3 on this machine, for development.",
        epilog=f"Programs are fetched once, into {cache_folder()}; {VARIABLE} names another folder.",
    )
    parser.set_defaults(memory=False, owner=None, env=None, json=False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in HELP.items():
        verb = verbs.add_parser(name, help=text, description=text.capitalize() + ".")
        add_services(verb, name)
        add_options(verb, name)
    return parser.parse_args(arguments)


def add_services(verb: argparse.ArgumentParser, name: str) -> None:
    if name == "guard":
        verb.add_argument("pid", type=int, metavar="PID", help="the process that is waited for")
        return
    some = "+" if name in ("kill", "start") else "*"
    what = "which" if some == "+" else "which; all if none is named"
    names = [*NAMES, *TOOLS] if name == "fetch" else NAMES
    verb.add_argument("services", nargs=some, metavar="SERVICE", help=f"{what}: {', '.join(names)}")


def add_options(verb: argparse.ArgumentParser, name: str) -> None:
    verb.add_argument(
        "--data", type=Path, default=DATA_DEFAULT, help="where their data is kept (default: data/services)"
    )
    if name not in ("status", "fetch", "guard"):
        verb.add_argument("--env", type=Path, help=f"the environment file (default: {ENV_NAME} in --data)")
    if name in ("up", "reset"):
        memory = (
            "DynamoDB Local keeps its tables in memory, Cassandra waits for no disk: faster, and not safe"
        )
        verb.add_argument("--memory", action="store_true", help=memory)
        owner = "when this process ends, kill the services and delete their data"
        verb.add_argument("--owner", type=int, metavar="PID", help=owner)
    if name == "status":
        verb.add_argument("--json", action="store_true", help="for programs")


def run(services: ServiceSet, options: argparse.Namespace) -> None:
    match options.verb:
        case "up":
            up(services, options.services)
        case "status":
            show(services.status(*options.services), as_json=options.json)
        case "fetch":
            fetch(options.services)
        case "guard":
            services.guard(options.pid)
        case verb:
            getattr(services, verb)(*options.services)


def up(services: ServiceSet, names: Sequence[str]) -> None:
    """Start all services that can start, print the environment file, and fail if one could not start."""
    failures = services.try_up(*names)
    print(services.env_file)
    if failures:
        raise ServiceError("\n".join(str(failure) for failure in failures.values()))


def fetch(names: Sequence[str]) -> None:
    """Fetch all programs that can be fetched, and fail if one could not."""
    failures = []
    programs = {service.title: service.program for service in _services_of(names)}
    programs |= {tool.TITLE: tool.program for name, tool in TOOLS.items() if not names or name in names}
    for title, program in programs.items():
        try:
            program(say)
        except ServiceError as failure:
            failures.append(f"{title} could not be fetched. {failure}")
    if failures:
        raise ServiceError("\n".join(failures))


def _services_of(names: Sequence[str]) -> list[Service]:
    """The services among the names; all services if no name is given."""
    services = [name for name in names if name not in TOOLS]
    return chosen(services) if services or not names else []


def show(found: Sequence[Status], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([dataclasses.asdict(status) for status in found], indent=2))
        return
    line = "{:<10} {:<8} {:<8} {:<22} {:>8} {:>8}"
    print(line.format("service", "state", "version", "address", "pid", "memory"))
    for status in found:
        memory = f"{status.memory_bytes // 1_000_000} MB" if status.memory_bytes else ""
        pid = status.pid if status.pid is not None else ""
        print(line.format(status.service, status.state, status.version, status.address, pid, memory))


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def fail(sentence: str) -> int:
    say(sentence)
    return 1
