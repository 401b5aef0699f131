"""Make files and folders that only their owner can use, whatever the umask; narrow the mode of existing ones."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The permission bits of group and others.
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class NotPrivate(Exception):
    """Others can use a file or folder, and this process may not change its mode; the text has the command that does."""

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(
            f"others can use {path}, and it belongs to another user: "
            f"have its owner run `chmod {mode:o} {path}`, or choose another place"
        )


def make_folder(path: Path) -> None:
    """Make a folder with its missing parents, or narrow an existing one."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        with suppress(FileExistsError):  # another process has just made it
            one.mkdir(mode=FOLDER_MODE)
            one.chmod(FOLDER_MODE)
    _narrow(path, FOLDER_MODE)


def make_file(path: Path) -> None:
    """Make an empty file, or narrow an existing one.

    A file that is there is not opened: to close it again would give up the locks that SQLite holds on it.
    """
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        _narrow(path, FILE_MODE)
        return
    try:
        os.fchmod(made, FILE_MODE)
    finally:
        os.close(made)


def narrow_files(paths: Iterable[Path]) -> None:
    """Narrow those of the files that exist."""
    for path in paths:
        with suppress(FileNotFoundError):
            _narrow(path, FILE_MODE)


def _narrow(path: Path, mode: int) -> None:
    found = stat.S_IMODE(path.stat().st_mode)
    if not found & OTHERS:
        return
    try:
        path.chmod(found & ~OTHERS)
    except PermissionError:
        raise NotPrivate(path, mode) from None
