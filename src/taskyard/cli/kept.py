"""A person's own file of profiles: servers with their tokens, each under a name, and which of them is used.

It holds secrets, so only its owner may read it. What people wrote into it stays as they wrote it: an edit replaces one
part of the text, and is given up when the result does not say what it should.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from taskyard.cli import reports
from taskyard.private_files import FILE_MODE, make_folder
from taskyard.sdk import profiles
from taskyard.sdk.profiles import KEYS, PROFILE_KEYS, Profile, ProfileFile, folder, path

#: What comes from there is used from here.
__all__ = [
    "KEYS",
    "NAME",
    "PROFILE_KEYS",
    "Profile",
    "ProfileFile",
    "Uneditable",
    "folder",
    "forget",
    "keep",
    "path",
    "read",
    "use",
    "write_secret",
]

#: What a profile may be called: it needs no quotes anywhere.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Uneditable(Exception):
    """A file that cannot be changed; the text says why, and what helps."""


def read() -> ProfileFile:
    """Read the file; one that is not there, or cannot be read, says nothing."""
    return profiles.read_profiles(reports.say_error)


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
