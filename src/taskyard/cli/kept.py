"""A person's own file of profiles: servers with their tokens, each under a name, and which of them is used.

It holds secrets, so only its owner may read it. What people wrote into it stays as they wrote it: an edit replaces one
part of the text, and is given up when the result does not say what it should.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskyard.cli import nearest, reports
from taskyard.private_files import FILE_MODE, OTHERS, make_folder

#: More than any such file needs.
FILE_BYTES_MAX: Final = 1_000_000
#: What a profile may be called: it needs no quotes anywhere.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: The keys of the file, and of each profile in it.
KEYS: Final[Mapping[str, str]] = {
    "profile": "the name of the profile that is used unless another is named",
    "profiles": "the profiles, each a table `[profiles.NAME]`",
}
PROFILE_KEYS: Final[Mapping[str, str]] = {
    "url": "the server's address",
    "token": "the token for this server; it is sent to no other",
    "ca_file": "a file with the certificate of the authority that signed the server's",
    "by": "`up`: `taskyard up` wrote this profile and may write it anew",
}


class Uneditable(Exception):
    """A file that cannot be changed; the text says why, and what helps."""


class Profile(NamedTuple):
    """A server, and the token for it."""

    name: str
    url: str
    token: str | None = None
    by_up: bool = False  # written by `taskyard up`, which may write it anew
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Profile({self.name!r}, {self.url!r})"


class Kept(NamedTuple):
    """What the file says."""

    default: str | None = None
    profiles: Mapping[str, Profile] = MappingProxyType({})


def path() -> Path:
    """Say where the file is."""
    return folder("XDG_CONFIG_HOME", ".config") / "config.toml"


def folder(variable: str, below_home: str) -> Path:
    """Say where things of one kind are kept."""
    base = os.environ.get(variable) or ""
    # A path that is not absolute is to be ignored, says the XDG specification.
    return (Path(base) if Path(base).is_absolute() else Path.home() / below_home) / "taskyard"


def read() -> Kept:
    """Read the file; one that is not there, or cannot be read, says nothing."""
    said = read_toml(path())
    tell_unknown(path(), said, KEYS)
    tables = said.get("profiles")
    profiles = {
        name: _profile(name, table) for name, table in (tables if isinstance(tables, dict) else {}).items()
        if isinstance(table, dict) and text_of(table.get("url"))
    }  # fmt: skip
    if any(one.token for one in profiles.values()):
        _warn_if_exposed(path())
    return Kept(text_of(said.get("profile")), profiles)


def read_toml(file: Path) -> dict[str, Any]:
    """Read a small file; one that is not there says nothing, and neither does one that cannot be read, once told."""
    try:
        with file.open("rb") as opened:
            written = opened.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as fault:
        reports.say_error(f"{file} cannot be read and is left aside: {fault.strerror}")
        return {}
    import tomllib  # noqa: PLC0415 - who has no file does not pay for it

    try:
        return tomllib.loads(written.decode())
    except ValueError as fault:
        reports.say_error(f"{file} cannot be read and is left aside: {fault}")
        return {}


def tell_unknown(file: Path, said: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Say which keys mean nothing, and what was probably meant."""
    for key in said:
        if key not in known:
            reports.say_error(f"{file}: {nearest.unknown('key', key, known)}")


def text_of(value: object) -> str | None:
    """Take a value for text, or for nothing."""
    return value if isinstance(value, str) and value else None


def keep(profile: Profile, *, use: bool) -> None:
    """Write a profile, in the place of one of the same name; `use`: it is the one that is used from now on."""
    lines = [("by", "up")] if profile.by_up else []
    lines += [("url", profile.url), *([("token", profile.token)] if profile.token else [])]
    lines += [("ca_file", profile.ca_file)] if profile.ca_file else []
    table = f"[profiles.{profile.name}]\n" + "".join(f"{key} = {_quoted(value)}\n" for key, value in lines)
    text = _with_table(_text(), profile.name, table)
    _write(_with_default(text, profile.name) if use else text)


def use(name: str) -> None:
    """Have a profile used unless another is named."""
    _write(_with_default(_text(), name))


def forget(name: str) -> None:
    """Remove a profile; if it was the one in use, none is."""
    text = _with_table(_text(), name, "")
    _write(_with_default(text, None) if read().default == name else text)


def write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    if not file.parent.exists():
        make_folder(file.parent)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), FILE_MODE)  # whatever the umask took away
        out.write(text)
    draft.replace(file)


def _profile(name: str, table: Mapping[str, Any]) -> Profile:
    tell_unknown(path(), table, PROFILE_KEYS)
    return Profile(
        name,
        text_of(table["url"]) or "",
        text_of(table.get("token")),
        table.get("by") == "up",
        text_of(table.get("ca_file")),
    )


def _warn_if_exposed(file: Path) -> None:
    """Say that others can read a secret."""
    with suppress(OSError):
        if file.stat().st_mode & OTHERS:
            reports.say_error(f"others on this machine can read the tokens in {file}: chmod 600 {file}")


def _text() -> str:
    try:
        return path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _write(text: str) -> None:
    """Write the text of the file, if it is one that can be read."""
    import tomllib  # noqa: PLC0415

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise Uneditable(f"{path()} cannot be changed without breaking it: {fault}; edit it by hand") from fault
    write_secret(path(), text)


def _with_table(text: str, name: str, table: str) -> str:
    """Put a table into the place of the one of this name, or behind everything."""
    head = re.search(rf"^[ \t]*\[[ \t]*profiles[ \t]*\.[ \t]*[\"']?{name}[\"']?[ \t]*\][^\n]*\n?", text, re.MULTILINE)
    if head is None:
        return "\n\n".join(part for part in (text.rstrip("\n"), table) if part)
    behind = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, head.end())
    rest = text[behind.start() :] if behind else ""
    return text[: head.start()] + table + (f"\n{rest}" if rest and table else rest)


def _with_default(text: str, name: str | None) -> str:
    """Say in the head of the text, above all tables, which profile is used."""
    table = re.search(r"^[ \t]*\[", text, re.MULTILINE)
    head, rest = (text[: table.start()], text[table.start() :]) if table else (text, "")
    line = f"profile = {_quoted(name)}\n" if name else ""
    changed, count = re.subn(r"^[ \t]*profile[ \t]*=[^\n]*\n?", lambda _: line, head, count=1, flags=re.MULTILINE)
    if count or not line:
        return changed + rest
    return line + (f"\n{text}" if text and not text.startswith("\n") else text)


def _quoted(text: str) -> str:
    """Write text as TOML: its basic strings are those of JSON, without the character that it leaves as it is."""
    import json  # noqa: PLC0415 - only who writes needs it

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
