"""Shows the coordinator at work: ``scripts/run [--root DIR] [--sample FILE] [options of muster live]``.

First real consumers (kafka-python, each a process) form a group that the live coordinator coordinates; one leaves, then
the others. Then the coordinator runs on requests that a real broker once answered, and the answers are compared.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from scripts.demo.sample import HERE, SAMPLE, run_sample, show
from scripts.ports import free_port

#: How long the coordinator may take until it lets clients in, in seconds.
_WARM_UP = 300.0
_STOP = 120.0


def main(
    context: typer.Context,
    root: Annotated[Path, typer.Option(help="Where the logs, the tables and the checkpoints are.")] = Path("data"),
    sample: Annotated[Path, typer.Option(help="A request log of a Kafka broker.")] = SAMPLE,
    seconds: Annotated[float, typer.Option(help="How long the consumers stay together, and without the first.")] = 15.0,
) -> None:
    """Let real consumers form a group, then answer a real broker's requests again; show what came of both."""
    run_fleet(root / "fleet", seconds, context.args)
    typer.echo("\nNow the requests of a real broker's clients, answered again:\n")
    sys.stdout.flush()
    run_sample(root / "sample", sample, context.args)


def run_fleet(root: Path, seconds: float, options: list[str]) -> None:
    """Starts the live coordinator, lets a few consumers join, one leave and then the others, and shows the tables."""
    address = f"127.0.0.1:{free_port()}"
    typer.echo(f"starting the live coordinator, its clients' address is {address}")
    sys.stdout.flush()
    job = [sys.executable, str(HERE / "jobs" / "coordinator_stream.py"), "--root", str(root), "--listen", address]
    coordinator = subprocess.Popen([*job, "--config", str(HERE / "conf" / "demo.toml"), *options])
    try:
        _wait_for(address, coordinator)
        typer.echo("three consumers of orders and payments join the group fleet; after a while one leaves")
        sys.stdout.flush()
        fleet = [sys.executable, str(HERE / "scripts" / "demo" / "fleet.py"), "--address", address]
        fleet += ["--topics", "orders,payments", "--seconds", str(seconds)]
        status = subprocess.run(fleet, check=False).returncode
    finally:
        coordinator.send_signal(signal.SIGTERM)
        try:
            stopped = coordinator.wait(_STOP)
        except subprocess.TimeoutExpired:
            coordinator.kill()
            raise
    if status or stopped:
        typer.echo(f"the consumers ended with {status}, the coordinator with {stopped}, expected 0 and 0", err=True)
        raise typer.Exit(1)
    show(root)


def _wait_for(address: str, coordinator: subprocess.Popen[bytes]) -> None:
    """Waits until the coordinator lets clients in."""
    host, port = address.split(":")
    end = time.monotonic() + _WARM_UP
    while time.monotonic() < end:
        if coordinator.poll() is not None:
            raise typer.Exit(coordinator.returncode or 1)
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            time.sleep(0.3)
    typer.echo(f"the coordinator didn't listen on {address} within {_WARM_UP:.0f} s", err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False)
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(main)
    app()
