"""The commands `config`, `login`, `profile list`, `profile use` and `profile remove`.

Tokens are never printed whole. `login` takes no token on the command line, where others could read it.
"""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from taskyard.cli import profiles
from taskyard.cli.client import Server, connected, server_options
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, command, completes, listing_options, output_option
from taskyard.cli.output import Column, Listing, print_err, print_error, print_list, print_one, unknown_word
from taskyard.cli.profiles import Profile
from taskyard.sdk.servers import joined_urls

CONFIG_EXAMPLES: Final = """\
Examples:

    taskyard config                  show the settings and their sources
    taskyard config --profile lab    show those of a profile
    taskyard config -o json          print them as JSON
"""
LIST_EXAMPLES: Final = """\
Examples:

    taskyard profile list
    taskyard profile list -o name
"""
USE_EXAMPLES: Final = """\
Examples:

    taskyard profile use lab
"""
REMOVE_EXAMPLES: Final = """\
Examples:

    taskyard profile remove lab
"""
LOGIN_EXAMPLES: Final = """\
Examples:

    taskyard login https://yard.example.com
    taskyard login https://yard.example.com --name lab < token.txt
    taskyard login http://127.0.0.1:8420 --no-use
"""
#: Longer than any token.
TOKEN_CHARACTERS_MAX: Final = 4_096

name_argument = click.argument("name", metavar="NAME", help="Profile name.", shell_complete=completes("profile"))


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of commands, and its source."""

    key: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ProfileView:
    """A profile, with its token masked."""

    name: str
    url: str
    token: str | None  # masked
    used: bool


_SETTINGS: Final[list[Column]] = [
    ("key", lambda one: one.key),
    ("value", lambda one: one.value),
    ("source", lambda one: one.source),
]
_PROFILES: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("url", lambda one: one.url),
    ("token", lambda one: one.token),
    ("used", lambda one: one.used),
]


@command("config", CONFIG_EXAMPLES)
@listing_options
@server_options
def config(listing: Listing, server: Server) -> int:
    """Show the server and the token that commands use, and their sources.

    An option overrides the environment, then come the project file, your
    default profile, and the built-in default.
    """
    found = profiles.look(server.url, server.token, server.profile, server.ca_file)
    project = profiles.project_file()
    settings = [
        Setting("url", found.url.value, found.url.source),
        Setting("token", masked(found.token.value), found.token.source),
        Setting("profile", found.profile.value, found.profile.source),
        Setting("ca_file", found.ca_file.value, found.ca_file.source),
        Setting("user file", str(profiles.path()), "exists" if profiles.path().exists() else "does not exist"),
        Setting("project file", str(project) if project else None, "exists" if project else "does not exist"),
    ]
    return print_list(settings, listing, _SETTINGS, lambda one: one.key, fit=False)


@command("profile list", LIST_EXAMPLES)
@listing_options
def list_profiles(listing: Listing) -> int:
    """List your profiles: servers and their tokens."""
    own = profiles.read()
    views = [
        ProfileView(one.name, one.url, masked(one.token), one.name == own.default) for one in own.profiles.values()
    ]
    return print_list(views, listing, _PROFILES, lambda one: one.name)


@command("profile use", USE_EXAMPLES)
@name_argument
def use(name: str) -> int:
    """Make a profile the default."""
    _check_known(name)
    _edit(lambda: profiles.use(name))
    print_err(f"commands now use {profiles.read().profiles[name].url}")
    return Exit.OK


@command("profile remove", REMOVE_EXAMPLES)
@name_argument
def remove(name: str) -> int:
    """Remove a profile and its token; the token stays valid."""
    _check_known(name)
    _edit(lambda: profiles.remove(name))
    print_err(f"profile {name} is removed; its token stays valid until `taskyard token revoke`")
    return Exit.OK


@command("login", LOGIN_EXAMPLES)
@click.argument("url", metavar="URL", help="Server address; of several servers, with commas between them.")
@click.option("--name", metavar="NAME", help="Profile name [default: the name of the host].")
@click.option("--use/--no-use", default=True, help="Make the profile the default.")
@click.option("--ca-file", type=PATH, metavar="PATH", help="Certificate of the authority that signed the server's.")
@output_option("name")
def login(url: str, name: str | None, use: bool, ca_file: Path | None, output: str) -> int:
    """Save a server and its token as a profile.

    The token is prompted for on a terminal, or read from standard input. It is
    saved only if the server accepts it.
    """
    first = url.partition(",")[0]
    called = name or re.sub("[^A-Za-z0-9_-]+", "-", urlsplit(first).hostname or "").strip("-")
    if not profiles.NAME.fullmatch(called):
        raise click.UsageError(f"{called!r} is not a profile name of letters, digits, _ and -: add --name NAME")
    made = Profile(
        called, joined_urls(url), _read_token(), ca_file=None if ca_file is None else str(ca_file.absolute())
    )
    _check_token(made)
    _edit(lambda: profiles.save(made, use=use))
    print_err(f"{made.url} is profile {made.name}" + ("; commands now use it" if use else ""))
    shape = asdict(ProfileView(made.name, made.url, masked(made.token), use))
    return print_one(shape, output, lambda: [f"{made.name}  {made.url}"], made.name)


def masked(token: str | None) -> str | None:
    """Return the kind of a token, with the rest masked."""
    if token is None:
        return None
    kind = re.match("[a-z]+_[a-z]+_", token)
    return f"{kind[0] if kind else ''}****"


def _check_known(name: str) -> None:
    known = profiles.read().profiles
    if name not in known:
        raise click.UsageError(unknown_word("profile", name, known))


def _edit(edit: Callable[[], None]) -> None:
    try:
        edit()
    except (profiles.CannotEdit, OSError) as fault:
        print_error(str(fault))
        raise CommandFailed(Exit.ERROR) from fault


def _read_token() -> str:
    """Prompt for the token, or read a line of standard input."""
    if sys.stdin.isatty():
        from getpass import getpass  # noqa: PLC0415 - only a prompt needs it

        token = getpass("token: ", stream=sys.stderr).strip()
    else:
        token = sys.stdin.readline(TOKEN_CHARACTERS_MAX).strip()
    if not token:
        raise click.UsageError("missing token on standard input")
    return token


def _check_token(made: Profile) -> None:
    """Check that the server accepts the token, whatever its rights are."""
    from taskyard.sdk.errors import Forbidden  # noqa: PLC0415

    with connected(Server(made.url, made.token, ca_file=made.ca_file)) as client, suppress(Forbidden):
        client.pools()
