"""Profiles: which server a command is for, and the user's own file of servers with their tokens.

`sdk/profiles.py` reads the files; this module prints warnings about them and writes the file of the user, which only
the owner can read because it has tokens.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from taskyard.cli.output import print_error
from taskyard.private_files import FILE_MODE, make_folder
from taskyard.sdk import profiles
from taskyard.sdk.errors import Unset
from taskyard.sdk.profiles import (
    DEFAULT_URL,
    KEYS,
    PROFILE_KEYS,
    PROJECT_FILE,
    PROJECT_KEYS,
    Profile,
    ProfileFile,
    ResolvedServer,
    Target,
    data_folder,
    path,
)

__all__ = [
    "DEFAULT_URL",
    "KEYS",
    "NAME",
    "PROFILE_KEYS",
    "PROJECT_FILE",
    "PROJECT_KEYS",
    "VARIABLES",
    "CannotEdit",
    "Profile",
    "Target",
    "data_folder",
    "find",
    "look",
    "path",
    "project_file",
    "read",
    "remove",
    "save",
    "use",
    "write_secret",
]

#: The name of a profile: it needs no quotes anywhere.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

#: The environment variables that commands read; docs/commands.md lists them.
VARIABLES: Final[Mapping[str, str]] = {
    "TASKYARD_URL": "address of the server; of several servers of a database, with commas between them",
    "TASKYARD_TOKEN": "token; unlike one on a command line, other users cannot see it",
    "TASKYARD_PROFILE": "name of a profile; `TASKYARD_URL` overrides its address",
    "TASKYARD_AMQP": "URL of the message broker of `taskyard serve`, also with a password",
    "TASKYARD_CA_FILE": "file with the certificate of the authority that signed the server's",
    "TASKYARD_TASK_ID": "id of the running task, which gets the artifacts of `taskyard put --artifact`; bots set it",
    "TASKYARD_BROKER": "address of the message broker of the engine `celery`, which may have a password",
    "TASKYARD_BROKER_FILE": "file with that address",
    "TASKYARD_QUEUE": "queue of the Celery workers of a bot; default `taskyard`",
    "NO_COLOR": "if not empty: no colours and no live view, only lines",
    "FORCE_COLOR": "if neither empty nor 0: colours on a pipe, too; `NO_COLOR` overrides it",
    "TERM": "`dumb`: a terminal without colours and live view",
    "COLUMNS": "width of tables on a terminal",
    "DISPLAY": "screen, if there is one: `taskyard up` opens the page on it",
    "WAYLAND_DISPLAY": "the same",
    "PGHOST": "host of PostgreSQL, which `taskyard doctor` checks; so are the next three",
    "PGHOSTADDR": "address of PostgreSQL",
    "PGSERVICE": "service name of PostgreSQL",
    "PGDATABASE": "database name of PostgreSQL",
    "XDG_CONFIG_HOME": "folder of `taskyard/config.toml`; default `~/.config`",
    "XDG_DATA_HOME": "folder of `taskyard/`, the data of `taskyard up` and bots; default `~/.local/share`",
}


class CannotEdit(Exception):
    """The file of the user cannot be changed; the text says why."""


def find(url: str | None, token: str | None, profile: str | None = None, ca_file: str | None = None) -> Target:
    """Find the server for a command, given its flags; raise `click.UsageError` if there is none."""
    try:
        return profiles.resolve(url, token, profile, ca_file, print_error)
    except Unset as fault:
        raise click.UsageError(str(fault)) from fault


def look(
    url: str | None = None, token: str | None = None, profile: str | None = None, ca_file: str | None = None
) -> ResolvedServer:
    """Find the server for a command, with the source of each setting."""
    try:
        return profiles.resolve_with_sources(url, token, profile, ca_file, print_error)
    except Unset as fault:
        raise click.UsageError(str(fault)) from fault


def project_file() -> Path | None:
    """Find the project file, in this folder or its parents."""
    return profiles.project_file(print_error)


def read() -> ProfileFile:
    """Read the file of the user; a missing or unreadable file is empty."""
    return profiles.read_profiles(print_error)


def save(profile: Profile, *, use: bool) -> None:
    """Add or replace a profile; with `use`, make it the default."""
    content = _load()
    values = {
        "by": "up" if profile.by_up else None,
        "url": profile.url,
        "token": profile.token,
        "ca_file": profile.ca_file,
    }
    known = {key: value for key, value in values.items() if value is not None}
    content.setdefault("profiles", {})[profile.name] = known
    if use:
        content = {"profile": profile.name} | content | {"profile": profile.name}
    _write(content)


def use(name: str) -> None:
    """Make a profile the default."""
    _write({"profile": name} | _load() | {"profile": name})


def remove(name: str) -> None:
    """Remove a profile; if it was the default, there is no default any more."""
    content = _load()
    content.get("profiles", {}).pop(name, None)
    if content.get("profile") == name:
        del content["profile"]
    _write(content)


def write_secret(file: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    if not file.parent.exists():
        make_folder(file.parent)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), FILE_MODE)  # whatever the umask is
        out.write(text)
    draft.replace(file)


def _load() -> dict[str, Any]:
    """Read the whole file, unknown keys included; raise `CannotEdit` if it is not TOML."""
    import tomllib  # noqa: PLC0415 - few commands change the file

    try:
        return tomllib.loads(path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as fault:
        raise CannotEdit(f"cannot change {path()}: {fault}; edit it by hand") from fault


def _write(content: dict[str, Any]) -> None:
    import tomli_w  # noqa: PLC0415

    write_secret(path(), tomli_w.dumps(content))
