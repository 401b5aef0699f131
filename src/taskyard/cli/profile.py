"""Which server a person means: the user's profile file, and what stands above and below it.

A flag wins over the environment, the environment over the profile, the profile over the default. A token of the profile
is for the server of the profile: it is never sent to another. The file holds a secret, so only its owner may read it.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskyard.cli import reports

DEFAULT_URL: Final = "http://127.0.0.1:8420"
#: More than any profile needs.
PROFILE_BYTES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the token for it."""

    url: str
    token: str | None


@dataclass(frozen=True, slots=True)
class Profile:
    """What the file says; `by_up`: it was written by `taskyard up`, which may write it anew."""

    url: str | None = None
    token: str | None = None
    by_up: bool = False


def find(url: str | None, token: str | None) -> Target:
    """Say which server is meant, with what was given as flags."""
    named = url or os.environ.get("TASKYARD_URL")
    given = token or os.environ.get("TASKYARD_TOKEN")
    if named and given:
        return Target(named, given)
    known = read()
    address = named or known.url or DEFAULT_URL
    is_its_own = address.rstrip("/") == (known.url or DEFAULT_URL).rstrip("/")
    return Target(address, given or (known.token if is_its_own else None))


def path() -> Path:
    """Say where the profile is."""
    return _folder("XDG_CONFIG_HOME", ".config") / "profile.toml"


def yard_folder() -> Path:
    """Say where `taskyard up` keeps its database unless told."""
    return _folder("XDG_DATA_HOME", ".local/share")


def read() -> Profile:
    """Read the profile; one that is not there, or cannot be read, says nothing."""
    import tomllib  # noqa: PLC0415 - who names server and token does not pay for it

    try:
        with path().open("rb") as file:
            said = tomllib.loads(file.read(PROFILE_BYTES_MAX).decode())
    except FileNotFoundError:
        return Profile()
    except (OSError, ValueError) as fault:
        reports.say_error(f"the profile {path()} cannot be read and is left aside: {fault}")
        return Profile()
    return Profile(_text(said.get("url")), _text(said.get("token")), said.get("by") == "up")


def keep(url: str, token: str) -> bool:
    """Write the profile for a server that `up` started; False if somebody has a profile of their own there."""
    known = read()
    if known.url is not None and not known.by_up:
        return known == Profile(url, token)
    write_secret(path(), "".join(f"{key} = {json.dumps(value)}\n" for key, value in _lines(url, token)))
    return True


def write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    draft.replace(file)


def _lines(url: str, token: str) -> list[tuple[str, str]]:
    return [("by", "up"), ("url", url), ("token", token)]


def _folder(variable: str, below_home: str) -> Path:
    base = os.environ.get(variable) or ""
    # A path that is not absolute is to be ignored, says the XDG specification.
    return (Path(base) if Path(base).is_absolute() else Path.home() / below_home) / "taskyard"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
