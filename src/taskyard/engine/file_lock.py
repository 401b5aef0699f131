"""The lock of a SQLite file: one engine at a time. The kernel releases it when the process ends, however it ends."""

import fcntl
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from taskyard.engine.errors import InUse
from taskyard.private_files import make_file
from taskyard.store.queries import StoreUnavailable

_FILE: Final = "sqlite:///"


class FileLock:
    """The exclusive right to write to a SQLite file. PostgreSQL is shared and has no such lock."""

    def __init__(self, url: str) -> None:
        self._file: TextIOWrapper | None = None
        if url.startswith(_FILE):
            path = Path(url.removeprefix(_FILE))
            self._file = _locked(path.with_name(f"{path.name}.lock"), path)

    @property
    def is_exclusive(self) -> bool:
        """Whether no other process can use the database."""
        return self._file is not None

    def leave(self) -> None:
        """Release the lock. The file stays: removing it could remove the one that another process has just locked."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _locked(path: Path, database: Path) -> TextIOWrapper:
    try:
        make_file(path)
        file = path.open("a", encoding="utf-8")
    except FileNotFoundError:
        raise StoreUnavailable(
            f"the database {database} cannot be opened: there is no folder {path.parent}: make it, or choose another"
        ) from None
    except OSError as fault:
        raise StoreUnavailable(f"the lock {path} of the database cannot be opened: {fault.strerror}") from fault
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as fault:
        file.close()
        raise InUse(
            f"{database} is in use by another Taskyard: stop that one first, or use PostgreSQL, which servers can share"
        ) from fault
    except BaseException:
        file.close()
        raise
    return file
