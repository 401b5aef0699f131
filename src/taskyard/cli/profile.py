"""Which server a command is for, as `sdk/profiles.py` finds it; what is odd in files is told on stderr."""

from pathlib import Path

import click

from taskyard.cli import reports
from taskyard.sdk import profiles
from taskyard.sdk.errors import Unset
from taskyard.sdk.profiles import (
    DEFAULT_URL,
    PROJECT_FILE,
    PROJECT_KEYS,
    ResolvedServer,
    Target,
    data_folder,
    same_server,
)

#: What comes from there is used from here.
__all__ = [
    "DEFAULT_URL",
    "PROJECT_FILE",
    "PROJECT_KEYS",
    "ResolvedServer",
    "Target",
    "data_folder",
    "find",
    "look",
    "project_file",
    "same_server",
]


def find(url: str | None, token: str | None, profile: str | None = None, ca_file: str | None = None) -> Target:
    """Say which server is meant, with what was given as flags; raise `click.UsageError` when that cannot be said."""
    try:
        return profiles.resolve(url, token, profile, ca_file, reports.say_error)
    except Unset as fault:
        raise click.UsageError(str(fault)) from fault


def look(
    url: str | None = None, token: str | None = None, profile: str | None = None, ca_file: str | None = None
) -> ResolvedServer:
    """Find out which server is meant, and who said what."""
    try:
        return profiles.resolve_with_sources(url, token, profile, ca_file, reports.say_error)
    except Unset as fault:
        raise click.UsageError(str(fault)) from fault


def project_file() -> Path | None:
    """Find the project file, here or above."""
    return profiles.project_file(reports.say_error)
