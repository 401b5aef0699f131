"""The commands `token create`, `list`, `revoke`, `rotate` and `rekey`. A token is printed only when it is created."""

from dataclasses import asdict
from typing import Final, NamedTuple

import click

from taskyard.cli.client import Server, connected, server_options
from taskyard.cli.options import bundle, choice, command, completes, duration, flag, listing_options, output_option
from taskyard.cli.output import (
    Column,
    Listing,
    format_age,
    format_fields,
    format_time,
    harmless,
    print_err,
    print_list,
    print_one,
)

EXAMPLES: Final = """\
Examples:

    taskyard token list
    taskyard token list -o json
"""
CREATE_EXAMPLES: Final = """\
Examples:

    taskyard token create --name ci --scope pool:lab:read --expires 30d
    taskyard token create --kind bot --name rack4 --pool lab
    taskyard token create --kind enrolment --name lab --pool lab --expires 1d
"""
REVOKE_EXAMPLES: Final = """\
Examples:

    taskyard token revoke 00c0ffee12345678
"""

ROTATE_EXAMPLES: Final = """\
Examples:

    taskyard token rotate 00c0ffee12345678            end the old one now
    taskyard token rotate 00c0ffee12345678 --keep 1h  end it in an hour
"""
KEY_EXAMPLES: Final = """\
Examples:

    taskyard token rekey        running tasks keep their tokens
    taskyard token rekey --now  end their tokens, too: the key has leaked
"""

_COLUMNS: Final[list[Column]] = [
    ("id", lambda one: one.id),
    ("kind", lambda one: one.kind),
    ("name", lambda one: one.name),
    ("pool", lambda one: one.pool),
    ("scopes", lambda one: " ".join(one.scopes)),
    ("made", lambda one: format_age(one.created_ms)),
    ("expires", lambda one: None if one.expires_ms is None else format_time(one.expires_ms)),
    ("revoked", lambda one: one.revoked_ms is not None),
]


class TokenSpec(NamedTuple):
    """What a new token may do."""

    name: str
    kind: str = "user"
    pool: str | None = None
    scope: tuple[str, ...] = ()
    expires: int | None = None


@command("token create", CREATE_EXAMPLES)
@bundle(
    "spec",
    TokenSpec,
    click.option("--name", required=True, metavar="NAME", help="Name of the token, shown in audits."),
    choice("--kind", words=("user", "bot", "enrolment"), default="user", help="Kind of token."),
    click.option("--pool", metavar="NAME", help="Pool of the bots.", shell_complete=completes("pool")),
    click.option(
        "--scope",
        multiple=True,
        metavar="SCOPE",
        help="Right: admin, or pool:NAME:read, submit, cancel, approve, secrets, catalogue, admin; can be repeated.",
    ),
    duration("--expires", help="How long the token is valid [default: forever]."),
)
@output_option("name")
@server_options
def create(spec: TokenSpec, output: str, server: Server) -> int:
    """Create a token and print it. It cannot be printed again."""
    with connected(server) as client:
        made = client.new_token(spec.kind, spec.name, pool=spec.pool, scopes=spec.scope, expires_in_ms=spec.expires)
        return print_one(
            asdict(made),
            output,
            lambda: [harmless(made.token), *format_fields(made.view, _COLUMNS)],
            made.token,
        )


@command("token list", EXAMPLES)
@listing_options
@server_options
def tokens(listing: Listing, server: Server) -> int:
    """List tokens by their ids; the tokens themselves are not stored."""
    with connected(server) as client:
        return print_list(client.tokens(), listing, _COLUMNS, lambda one: one.id)


@command("token revoke", REVOKE_EXAMPLES)
@click.argument("ids", nargs=-1, required=True, metavar="ID...", help="Token id, from `token list`.")
@output_option("name")
@server_options
def revoke(ids: tuple[str, ...], output: str, server: Server) -> int:
    """Revoke tokens at once."""
    with connected(server) as client:
        revoked = [client.revoke_token(id) for id in ids]
    for one in revoked:
        print_err(f"token {harmless(one.id)} ({harmless(one.name)}) is revoked")
    return print_list(revoked, Listing(output), _COLUMNS, lambda one: one.id)


@command("token rotate", ROTATE_EXAMPLES)
@click.argument("id", metavar="ID", help="Token id, from `token list`.")
@duration("--keep", default=("0s", 0), help="How long the old token stays valid, at most 30d.")
@output_option("name")
@server_options
def rotate(id: str, keep: int, output: str, server: Server) -> int:
    """Replace a token by a new one with the same rights, and print it. It cannot be printed again."""
    with connected(server) as client:
        made = client.rotate_token(id, keep_ms=keep)
        return print_one(
            asdict(made),
            output,
            lambda: [harmless(made.token), *format_fields(made.view, _COLUMNS)],
            made.token,
        )


@command("token rekey", KEY_EXAMPLES)
@flag("--now", help="Also end the tokens of running tasks, which lose their access.")
@server_options
def rotate_key(now: bool, server: Server) -> int:
    """Change the key that signs the tokens of running tasks."""
    with connected(server) as client:
        kept = client.rotate_run_key(keep=not now).kept
    what = "stay valid until these end" if kept else "are no longer valid"
    print_err(f"the key of run tokens is changed; tokens of running tasks {what}")
    return 0
