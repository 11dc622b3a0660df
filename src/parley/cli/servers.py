"""`parley jobs` and `parley nodes`: what a running server tells an operator of itself and of the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import typer

from parley.cli.options import As, AsJson, Ca, ConfigFile, Data, Token, Url

if TYPE_CHECKING:
    from parley.cli.remote import Identity
    from parley.wire.bodies import JobInfo

Answer = TypeVar("Answer")

jobs = typer.Typer(no_args_is_help=True, help="Background jobs: what runs, when, and how it went.")
nodes = typer.Typer(no_args_is_help=True, help="The nodes that work together.")

JOB_HEADINGS = ("JOB", "NODE", "SCOPE", "LAST RUN", "OUTCOME", "NEXT RUN", "RUNS", "FAILED", "ERROR")
NODE_HEADINGS = ("NODE", "ROLES", "ADDRESS", "SINCE", "VERSION")


@jobs.command("list")
def list_jobs(
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Every job of every node, with its last and its next run. Needs an operator's account or token."""
    from parley.cli import remote
    from parley.cli.output import print_json, print_table
    from parley.cli.places import find_place
    from parley.wire.bodies import JobList

    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        found = asyncio.run(_fetch(identity, "admin/jobs", JobList))
    if json:
        print_json(found)
        return
    print_table(JOB_HEADINGS, map(_row, found.jobs))


@nodes.command("list")
def list_nodes(
    name: As = None,
    token: Token = None,
    url: Url = None,
    ca: Ca = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """The nodes that are alive. Needs an operator's account or token."""
    from parley.cli import remote
    from parley.cli.output import print_json, print_table
    from parley.cli.places import find_place
    from parley.wire.operator_bodies import NodeList

    with remote.identified(find_place(data, config), name, token, url, ca) as identity:
        found = asyncio.run(_fetch(identity, "admin/nodes", NodeList))
    if json:
        print_json(found)
        return
    rows = [(node.node_id, "+".join(node.roles), node.url, node.since, node.version) for node in found.nodes]
    print_table(NODE_HEADINGS, rows)


def _row(job: JobInfo) -> tuple[object, ...]:
    outcome = "overdue" if job.is_overdue else job.last_outcome
    ran = job.last_started_at, outcome, job.next_run_at
    return job.name, job.node, job.scope, *ran, job.runs, job.failures, job.last_error


async def _fetch(identity: Identity, path: str, kind: type[Answer]) -> Answer:
    from parley.cli.remote import check_me
    from parley.client.api import Api, open_http

    async with open_http(identity.ca) as http:
        api = Api(http, identity.url, identity.token)
        await check_me(api, identity)
        return await api.call("GET", path, kind)
