"""``scripts/users``: the users of a gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coordinator_udf.gateway.security.users import checked_name, names, read_users, verifiers, write_users
from coordinator_udf.user_errors import UserError, telling_errors

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The users of a gateway (sasl.users.location). The file has a salt and what SCRAM checks passwords with, "
    "and no password. A gateway that runs takes over what is written to it.",
)

File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The file of users; made if it isn't there.")]
User = Annotated[str, typer.Argument(metavar="USER")]


@app.command()
def add(
    user: User,
    file: File,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input instead of asking for it.")
    ] = False,
) -> None:
    """Add a user, or give one another password."""
    users = read_users(file) if file.exists() else {}
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True)
    users[checked_name(user)] = verifiers(password)
    write_users(file, users)


@app.command()
def remove(user: User, file: File) -> None:
    """Remove a user. Connections that are open stay open."""
    users = read_users(file)
    if user not in names(users) or users.pop(user, None) is None:
        raise UserError(f"there is no user {user!r} in {file}; scripts/users list names them")
    write_users(file, users)


@app.command(name="list")
def list_users(file: File) -> None:
    """List the users."""
    for user in names(read_users(file)):
        typer.echo(user)


def main() -> None:
    """Runs the command; what a person can do something about is said in one line."""
    with telling_errors("users"):
        app()


if __name__ == "__main__":
    main()
