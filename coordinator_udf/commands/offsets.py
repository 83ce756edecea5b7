"""``scripts/offsets``: Kafka's offsets topic to and from the tables, and a group's offsets from a cluster and back."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coordinator_udf import stopping
from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.upstream.migrate import GroupCoordinator, MigrationError, Move, plan
from coordinator_udf.gateway.upstream.settings import UpstreamSettings, parse_bootstrap
from coordinator_udf.offsets_topic.cli import app
from coordinator_udf.user_errors import telling_errors


class To(StrEnum):
    """Where offsets are brought."""

    gateway = "gateway"
    upstream = "upstream"


@app.command()
def migrate(
    *,
    group: Annotated[str, typer.Option(metavar="GROUP", help="The group; it must have no members.")],
    upstream: Annotated[str, typer.Option(metavar="HOST:PORT,...", help="The cluster.")],
    gateway: Annotated[str, typer.Option(metavar="HOST:PORT,...", help="The gateway of Muster.")],
    to: Annotated[To, typer.Option(help="Where the offsets are brought, from the other.")] = To.gateway,
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit them; without it only tell what would be.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also where the group has committed another offset there.")
    ] = False,
    upstream_security: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of --security; its [upstream] is for the cluster.")
    ] = None,
    gateway_security: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of --security; its [upstream] is for the gateway.")
    ] = None,
) -> None:
    """Bring a group's offsets from a cluster, or back.

    What it would do is told first.
    """
    cluster = GroupCoordinator(f"the cluster at {upstream}", _settings(upstream, upstream_security), group)
    ours = GroupCoordinator(f"the gateway at {gateway}", _settings(gateway, gateway_security), group)
    source, target = (cluster, ours) if to is To.gateway else (ours, cluster)
    moves = asyncio.run(_migrate(source, target, execute=execute, overwrite=overwrite))
    for move in moves:
        before = "nothing" if move.there is None else str(move.there.offset)
        typer.echo(f"{move.topic}-{move.partition}: {move.offset.offset} (there: {before})")
    done = "committed" if execute else "would be committed; nothing was done, --execute does it"
    typer.echo(f"{len(moves)} offsets of {group} {done}", err=True)


async def _migrate(source: GroupCoordinator, target: GroupCoordinator, *, execute: bool, overwrite: bool) -> list[Move]:
    async with source, target:
        moves = await plan(source, target)
        others = [f"{move.topic}-{move.partition}" for move in moves if not move.is_new]
        if execute and others and not overwrite:
            raise MigrationError(
                f"{target.name} has other offsets for {', '.join(others[:5])}: look at them without --execute, and "
                "add --overwrite if they are to go"
            )
        if execute and moves:
            await target.commit(moves)
    return moves


def _settings(addresses: str, security: Path | None) -> UpstreamSettings:
    said = None if security is None else Security(security)
    return UpstreamSettings(
        bootstrap=parse_bootstrap(addresses),
        first_broker_port=None,
        tls=None if said is None else said.upstream_tls(),
        credentials=None if said is None else said.upstream_credentials(),
    )


def main() -> None:
    """Runs the command; what a person can do something about is said in one line."""
    with telling_errors("offsets"):
        stopping.run(lambda: app(prog_name="offsets"))


if __name__ == "__main__":
    main()
