"""Roles and collections that the files of a task require: ansible-galaxy installs them before Ansible runs.

`requirements.yml` names them, in the working folder or in its `roles` or `collections`. What is among these files is
not fetched. The rest is installed into a folder of the attempt, so that no other task finds it, and Ansible is told to
look there first.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from taskyard.bot.own_program import BotFailed, Missing, program

#: Where ansible-galaxy is told what to install, and how these files may end.
_FILES: Final = ("requirements", "roles/requirements", "collections/requirements")
_ENDINGS: Final = (".yml", ".yaml")
#: People write short files.
FILE_BYTES_MAX: Final = 1024 * 1024
#: How many names a message lists.
NAMED_MAX: Final = 10
#: What begins the source of a role or a collection that comes from no Galaxy server.
_ELSEWHERE: Final = ("git+", "git@", "http://", "https://", "file:", "/", "./", "../")


@dataclass(frozen=True, slots=True)
class _Kind:
    """Roles, or collections."""

    key: str  # in the file
    command: str
    variable: str  # where Ansible looks for them,
    setting: str  # and the setting that the variable replaces


_KINDS: Final = (
    _Kind("collections", "collection", "ANSIBLE_COLLECTIONS_PATH", "COLLECTIONS_PATHS"),
    _Kind("roles", "role", "ANSIBLE_ROLES_PATH", "DEFAULT_ROLES_PATH"),
)


def install_requirements() -> None:
    """Install what the files in the working folder require; raise `Missing` if it cannot be had."""
    wanted = [(file, kind, missing) for file, kind, entries in _read() if (missing := _not_there(kind, entries))]
    if not wanted:
        return
    folder = Path(os.environ["TASKYARD_RESULT"]).parent / "galaxy"
    folder.mkdir()
    settings = _settings()
    for kind in {kind for _, kind, _ in wanted}:
        paths = [str(folder / kind.key), *map(str, settings.get(kind.setting) or ())]
        os.environ[kind.variable] = os.pathsep.join(paths)
    for number, (file, kind, missing) in enumerate(wanted):
        list_file = folder / f"{number}.yml"
        list_file.write_bytes(msgspec.json.encode({kind.key: missing}))
        code = subprocess.run(  # noqa: S603 - the program of this bot, with options of its own
            [program("ansible-galaxy"), kind.command, "install", "-r", str(list_file), "-p", str(folder / kind.key)],
            stdin=subprocess.DEVNULL,
            stderr=sys.stdout,
            check=False,
        ).returncode
        if code:
            raise Missing(_not_installed(file, kind, missing, str(settings.get("GALAXY_SERVER"))))


def _read() -> Iterator[tuple[str, _Kind, list[Any]]]:
    """Read which roles and collections each file names."""
    for name in (f"{file}{ending}" for file in _FILES for ending in _ENDINGS):
        path = Path(name)
        if not path.is_file():
            continue
        if path.stat().st_size > FILE_BYTES_MAX:
            raise Missing(f"{name}: has more than {FILE_BYTES_MAX} bytes")
        try:
            found = yaml.safe_load(path.read_bytes())
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise Missing(f"{name}: is no YAML: {' '.join(str(error).split())}") from error
        if isinstance(found, list):
            found = {"roles": found}
        for kind in _KINDS:
            entries = (found or {}).get(kind.key) if isinstance(found, dict | None) else ...
            if not isinstance(entries, list | None):
                raise Missing(f"{name}: needs a list of roles, or an object with the lists roles and collections")
            yield name, kind, entries or []


def _not_there(kind: _Kind, entries: list[Any]) -> list[Any]:
    """Leave out what is among the files of the task."""
    return [entry for entry in entries if not _place(kind, _name(entry)).is_dir()]


def _place(kind: _Kind, name: str) -> Path:
    if kind.key == "roles":
        return Path("roles", name or "?")
    return Path("collections", "ansible_collections", *(name.split(":", maxsplit=1)[0].split(".", 1) if name else "?"))


def _name(entry: Any) -> str:
    """Return the name of a role or a collection; empty if only ansible-galaxy can tell."""
    named = entry if isinstance(entry, str) else ""
    if isinstance(entry, Mapping):
        named = next((str(entry[key]) for key in ("name", "role", "src") if entry.get(key)), "")
    return "" if named.startswith(_ELSEWHERE) or "/" in named else named.split(",")[0]


def _settings() -> dict[str, Any]:
    """Return Ansible's settings here, by name; what installs must not lose where Ansible looks anyway."""
    command = [program("ansible-config"), "dump", "--format", "json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sys.stdout, check=False)  # noqa: S603
    if done.returncode:
        raise BotFailed(f"ansible-config ended with exit code {done.returncode}")
    listed = msgspec.json.decode(done.stdout)
    return {one["name"]: one.get("value") for one in listed if isinstance(one, dict) and "name" in one}


def _not_installed(file: str, kind: _Kind, entries: list[Any], server: str) -> str:
    """Say what could not be installed, and from where."""
    named = [_named(entry, server) for entry in entries[:NAMED_MAX]]
    more = f", and {len(entries) - NAMED_MAX} more" if len(entries) > NAMED_MAX else ""
    return f"{file}: ansible-galaxy could not install these {kind.key}: {', '.join(named)}{more}; it says why above"


def _named(entry: Any, server: str) -> str:
    if not isinstance(entry, Mapping):
        text = str(entry)
        return text if text.startswith(_ELSEWHERE) else f"{text} from {server}"
    source = next((str(entry[key]) for key in ("source", "src") if entry.get(key)), "")
    name = str(entry.get("name") or entry.get("role") or source)
    if not source and name.startswith(_ELSEWHERE):
        return name
    return name if name == source and "/" in source else f"{name} from {source if '/' in source else server}"
