"""The programs of others that kinds of work need: whether a bot has them, and in which version."""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Final

#: How long a program may take to tell its version: Ansible takes about a second.
_VERSION_SECONDS: Final = 20.0
_VERSION: Final = re.compile(r"\b([0-9]+\.[0-9]+)((?:\.[0-9]+)*)")


def find_program(name: str, path: str | None = None) -> str | None:
    """Find a program in a PATH, or beside the bot's own Python; None if it is not there."""
    return shutil.which(name, path=path) or shutil.which(name, path=os.path.dirname(sys.executable))


@cache
def ansible_versions() -> tuple[str, ...]:
    """Return the version of Ansible, and its first two numbers, which can be compared; nothing if there is none."""
    program = find_program("ansible-playbook") if find_spec("ansible_runner") is not None else None
    if program is None:
        return ()
    if os.path.dirname(program) == os.path.dirname(sys.executable):
        return _versions(metadata.version("ansible-core"))
    return _told_version(program)


@cache
def git_versions() -> tuple[str, ...]:
    """Return the version of git, and its first two numbers, which can be compared; nothing if there is none."""
    program = find_program("git")
    return () if program is None else _told_version(program)


def _told_version(program: str) -> tuple[str, ...]:
    """Return what a program tells of its version."""
    try:
        told = subprocess.run(  # noqa: S603 - it was found in the PATH of the bot
            [program, "--version"], capture_output=True, timeout=_VERSION_SECONDS, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ()  # it does not run here
    return _versions(told.stdout.decode(errors="replace"))


def _versions(text: str) -> tuple[str, ...]:
    found = _VERSION.search(text)
    return () if found is None else tuple(sorted({found[1], found[1] + found[2]}))
