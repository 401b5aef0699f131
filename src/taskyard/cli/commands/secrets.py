"""The commands about secrets: `secret set`, `list`, `delete`, `rotate`, `key`. No command prints a value."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from taskyard.cli.client import Server, connected, server_options
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, command, completes, flag, listing_options, output_option
from taskyard.cli.output import (
    Column,
    Listing,
    format_age,
    format_fields,
    harmless,
    plural,
    print_err,
    print_error,
    print_list,
    print_one,
)
from taskyard.cli.ports import Backend, StartFailed

EXAMPLES: Final = """\
Examples:

    taskyard secret list
    taskyard secret list --pool lab -o json
"""
SET_EXAMPLES: Final = """\
Examples:

    taskyard secret set deploy                       asks for the value
    taskyard secret set deploy --pool lab <key.pem   takes all of standard input
    taskyard secret set deploy --file key.pem

Tasks of the pool name it: payload: {secrets: {TOKEN: deploy}}
"""
DELETE_EXAMPLES: Final = """\
Examples:

    taskyard secret delete deploy --pool lab
"""
ROTATE_EXAMPLES: Final = """\
Examples:

    taskyard secret key /etc/taskyard/secrets.key   the same file on each server
    taskyard secret rotate                          once, for all secrets
"""
KEY_EXAMPLES: Final = """\
Examples:

    taskyard secret key /etc/taskyard/secrets.key
"""
#: More than any secret may have.
_READ_MAX: Final = 65_536

_COLUMNS: Final[list[Column]] = [
    ("pool", lambda one: one.pool),
    ("name", lambda one: one.name),
    ("version", lambda one: one.version),
    ("changed", lambda one: format_age(one.changed_ms)),
    ("by", lambda one: one.changed_by),
    ("key", lambda one: one.key if one.opens else f"{one.key} (lost)"),
]

pool_option = click.option(
    "--pool",
    default="default",
    metavar="NAME",
    help="Pool of the tasks that may name it.",
    shell_complete=completes("pool"),
)


@command("secret set", SET_EXAMPLES)
@click.argument("name", metavar="NAME", help="Secret name; a new secret is created.")
@pool_option
@click.option("--file", type=PATH, metavar="PATH", help="File with the value, taken byte by byte.")
@output_option("table")
@server_options
def set_secret(name: str, pool: str, file: Path | None, output: str, server: Server) -> int:
    """Store a secret, or replace its value.

    The value comes from a prompt, from a file or from standard input, never
    from the command line, which every program on this machine can read.
    """
    value = _read_value(name, file)
    with connected(server) as client:
        secret = client.set_secret(name, value, pool=pool)
        return print_one(asdict(secret), output, lambda: format_fields(secret, _COLUMNS), secret.name)


@command("secret list", EXAMPLES)
@click.option("--pool", metavar="NAME", help="Only secrets of this pool.", shell_complete=completes("pool"))
@listing_options
@server_options
def secrets(pool: str | None, listing: Listing, server: Server) -> int:
    """List secrets, without their values."""
    with connected(server) as client:
        return print_list(client.secrets(pool=pool), listing, _COLUMNS, lambda one: one.name)


@command("secret delete", DELETE_EXAMPLES)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", help="Secret name, from `secret list`.")
@pool_option
@server_options
def delete(names: tuple[str, ...], pool: str, server: Server) -> int:
    """Delete secrets; tasks that name them wait until they are set again."""
    with connected(server) as client:
        deleted = [client.delete_secret(name, pool=pool) for name in names]
    for one in deleted:
        left = f"; {plural(one.tasks, 'task')} that have not ended name it, and wait" if one.tasks else ""
        print_err(f"secret {harmless(one.name)} of pool {harmless(one.pool)} is deleted{left}")
    return Exit.OK


@command("secret rotate", ROTATE_EXAMPLES)
@flag("--abandon", help="Give up a key that is lost for good: what only that key opens has to be set anew.")
@output_option("table")
@server_options
def rotate(abandon: bool, output: str, server: Server) -> int:
    """Encrypt all secrets with the first key of the server's key file.

    If it is interrupted, repeat it: it continues.
    """
    with connected(server) as client:
        done = client.rotate_secrets(abandon=abandon)
    for key in done.unused:
        print_err(f"key {key} encrypts nothing any more; keep it as long as copies of the database from before")
    if done.unopened:
        print_err(f"{plural(done.unopened, 'secret')} cannot be opened: their keys are not in the file")
    columns: list[Column] = [
        ("key", lambda one: one.key),
        ("encrypted anew", lambda one: one.rewrapped),
        ("lost", lambda one: one.unopened),
    ]
    return print_one(asdict(done), output, lambda: format_fields(done, columns), done.key)


@command("secret key", KEY_EXAMPLES)
@click.argument("file", type=PATH, metavar="FILE", help="Key file; a new file is created.")
@click.pass_obj
def new_key(work: Backend, file: Path) -> int:
    """Make a key and put it first in a key file on this machine.

    Nothing uses it before `secret rotate`. Copy the file to all servers of the
    database first, and keep a copy apart from copies of the database.
    """
    try:
        key = work.add_secret_key(file)
    except StartFailed as refusal:
        print_error(f"cannot make a key: {refusal}")
        return Exit.ERROR
    print_err(f"key {key} is the first of {harmless(str(file))}")
    return Exit.OK


def _read_value(name: str, file: Path | None) -> bytes:
    """Read a value from a file, a prompt or standard input."""
    if file is None and sys.stdin.isatty():
        value: str = click.prompt(f"Value of {harmless(name)}", hide_input=True, confirmation_prompt=True, err=True)
        return value.encode()
    try:
        if file is None:
            return sys.stdin.buffer.read(_READ_MAX)
        with file.open("rb") as opened:
            return opened.read(_READ_MAX)
    except OSError as error:
        print_error(f"cannot read {file or 'standard input'}: {error.strerror}")
        raise CommandFailed(Exit.ERROR) from error
