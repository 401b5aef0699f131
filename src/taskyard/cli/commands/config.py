"""The commands about where commands go: `config`, `profile list`, `profile use`, `profile remove`, `login`.

Tokens are never printed whole, and never taken from a command line by `login`: others could see them there.
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

CONFIG_EXAMPLES: Final = """\
Examples:

    taskyard config                  which server, which token, and who says so
    taskyard config --profile lab    what would be used with this flag
    taskyard config -o json          for a program
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
#: A token is shorter than this.
TOKEN_CHARACTERS_MAX: Final = 4_096

name_argument = click.argument("name", metavar="NAME", help="Profile name.", shell_complete=completes("profile"))


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that commands go by, and who said it."""

    key: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ProfileView:
    """A profile without its secret."""

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
    """Show which server and token commands go by, and who said so.

    A flag wins over the environment, that over a project file, that over your
    profile in use, and that over the default.
    """
    found = profiles.look(server.url, server.token, server.profile, server.ca_file)
    project = profiles.project_file()
    settings = [
        Setting("url", found.url.value, found.url.source),
        Setting("token", masked(found.token.value), found.token.source),
        Setting("profile", found.profile.value, found.profile.source),
        Setting("ca_file", found.ca_file.value, found.ca_file.source),
        Setting("user file", str(profiles.path()), "there" if profiles.path().exists() else "not there"),
        Setting("project file", str(project) if project else None, "there" if project else "not there"),
    ]
    return print_list(settings, listing, _SETTINGS, lambda one: one.key, fit=False)


@command("profile list", LIST_EXAMPLES)
@listing_options
def list_profiles(listing: Listing) -> int:
    """List your profiles: servers that you know, each with a token for it."""
    own = profiles.read()
    views = [
        ProfileView(one.name, one.url, masked(one.token), one.name == own.default) for one in own.profiles.values()
    ]
    return print_list(views, listing, _PROFILES, lambda one: one.name)


@command("profile use", USE_EXAMPLES)
@name_argument
def use(name: str) -> int:
    """Have a profile used unless another is named."""
    _known(name)
    _edited(lambda: profiles.use(name))
    print_err(f"commands go to {profiles.read().profiles[name].url} from now on")
    return Exit.OK


@command("profile remove", REMOVE_EXAMPLES)
@name_argument
def remove(name: str) -> int:
    """Forget a profile and its token; the token itself stays good."""
    _known(name)
    _edited(lambda: profiles.remove(name))
    print_err(f"profile {name} is gone; `taskyard token revoke` ends its token")
    return Exit.OK


@command("login", LOGIN_EXAMPLES)
@click.argument("url", metavar="URL", help="Server address.")
@click.option("--name", metavar="NAME", help="Profile name [default: the name of the host].")
@click.option("--use/--no-use", default=True, help="Use the profile from now on.")
@click.option("--ca-file", type=PATH, metavar="PATH", help="Certificate of the authority that signed the server's.")
@output_option("name")
def login(url: str, name: str | None, use: bool, ca_file: Path | None, output: str) -> int:
    """Keep a server and a token for it as a profile of yours.

    The token is asked for on a terminal, or read from standard input. The
    server is asked whether it takes it before anything is kept.
    """
    called = name or re.sub("[^A-Za-z0-9_-]+", "-", urlsplit(url).hostname or "").strip("-")
    if not profiles.NAME.fullmatch(called):
        raise click.UsageError(f"{called!r} is not a profile name of letters, digits, _ and -: give --name NAME")
    made = Profile(
        called, url.rstrip("/"), _asked_token(), ca_file=None if ca_file is None else str(ca_file.absolute())
    )
    _try(made)
    _edited(lambda: profiles.save(made, use=use))
    print_err(f"{made.url} is profile {made.name}" + ("; commands go there from now on" if use else ""))
    shape = asdict(ProfileView(made.name, made.url, masked(made.token), use))
    return print_one(shape, output, lambda: [f"{made.name}  {made.url}"], made.name)


def masked(token: str | None) -> str | None:
    """Show of a token only of which kind it is."""
    if token is None:
        return None
    kind = re.match("[a-z]+_[a-z]+_", token)
    return f"{kind[0] if kind else ''}****"


def _known(name: str) -> None:
    known = profiles.read().profiles
    if name not in known:
        raise click.UsageError(unknown_word("profile", name, known))


def _edited(edit: Callable[[], None]) -> None:
    try:
        edit()
    except (profiles.CannotEdit, OSError) as fault:
        print_error(str(fault))
        raise CommandFailed(Exit.ERROR) from fault


def _asked_token() -> str:
    """Ask a person, or read a line."""
    if sys.stdin.isatty():
        from getpass import getpass  # noqa: PLC0415 - only who is asked needs it

        token = getpass("token: ", stream=sys.stderr).strip()
    else:
        token = sys.stdin.readline(TOKEN_CHARACTERS_MAX).strip()
    if not token:
        raise click.UsageError("missing token on standard input")
    return token


def _try(made: Profile) -> None:
    """See that the server takes the token; what it may do is another matter."""
    from taskyard.sdk.errors import Forbidden  # noqa: PLC0415

    with connected(Server(made.url, made.token, ca_file=made.ca_file)) as client, suppress(Forbidden):
        client.pools()
