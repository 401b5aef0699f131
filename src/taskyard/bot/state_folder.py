"""The folder that belongs to one bot: a lock, a mark, and the places of the attempts that run now.

Nothing but the mark, and the token of a bot that has enrolled itself, outlives the bot's life: the next one begins by
clearing the rest.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import uuid
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]

from taskyard.bot.task_user import TaskUser
from taskyard.bot.workdir import remove_tree
from taskyard.private_files import make_file, make_folder

#: How long the name of a folder is: enough to tell apart a handful of bots that were given one name.
NAME_DIGITS: Final = 10
#: Where tasks work that run as another user than the bot. Only root can make something there.
WORK_FOLDERS: Final = Path("/var/lib/taskyard/work")
#: In front of what a lock says, so that nobody takes the file for something else.
_LOCK_TEXT: Final = "the process of the bot whose folder this is: "


class InUse(Exception):
    """Another bot has this folder."""


class State:
    """A bot's folder, held as long as this object is."""

    def __init__(self, folder: Path, user: TaskUser | None = None) -> None:
        make_folder(folder)
        make_file(folder / "lock")
        self._user = user
        self.work = folder.resolve() / "work" if user is None else _work_of(folder.resolve())
        self.begun = folder.resolve() / "begun"  # which attempts each life has begun, until the next one has said so
        self._lock = (folder / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.seek(0)
            owner = self._lock.read(200).removeprefix(_LOCK_TEXT).strip() or "unknown"
            self._lock.close()
            raise InUse(f"another bot uses the folder {folder} (process {owner}); give this one its own") from error
        self._lock.truncate(0)
        self._lock.write(f"{_LOCK_TEXT}{os.getpid()}\n")
        self._lock.flush()
        self._mark = folder.resolve() / "mark"
        if user is not None:
            _give(self.work, user)

    def name(self, marker: str) -> str:
        """Give what this folder, on this machine since it was started, is called in the names of sessions.

        The same name twice means that the bot before this one had this very folder, and that whatever it left is found
        by `marker`. So a copy of the folder has another name: elsewhere on this machine by its path and its lock, on
        another machine, even one that is a copy itself, by when that was started.
        """
        try:
            word = self._mark.read_text(encoding="utf-8")
        except FileNotFoundError:
            word = secrets.token_hex(8)
            make_file(self._mark)
            self._mark.write_text(word, encoding="utf-8")
        lock = os.fstat(self._lock.fileno())
        told = "\n".join((word, marker, _boot(), f"{lock.st_dev}:{lock.st_ino}"))
        return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:NAME_DIGITS]

    @property
    def enrolment(self) -> Path:
        """The file that keeps what came of an enrolment token."""
        return self._mark.with_name("enrolment")

    def sweep(self) -> None:
        """Remove what the last life left, and begin with an empty place of work."""
        remove_tree(str(self.work))
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)

    def close(self) -> None:
        """Let others have the folder."""
        remove_tree(str(self.work))
        if self._user is not None:
            # What was in it is gone, by the hand of its user; that user cannot remove the folder itself.
            with self.own_files(), suppress(OSError):
                self.work.rmdir()
        self._lock.close()

    def own_files(self) -> AbstractContextManager[None]:
        """Look at files as the bot's own user for a moment: this folder is not for the user of the tasks."""
        return nullcontext() if self._user is None else self._user.own_files()


def _work_of(folder: Path) -> Path:
    """Name the place of work of a bot whose tasks run as another user: the bot's own folder is not for that one."""
    return WORK_FOLDERS / hashlib.sha256(os.fsencode(folder)).hexdigest()[:NAME_DIGITS]


def _give(work: Path, user: TaskUser) -> None:
    """Have a place of work that is the user's."""
    for one in (WORK_FOLDERS.parent, WORK_FOLDERS):
        if not one.is_dir():
            one.mkdir(parents=True, exist_ok=True)
            one.chmod(0o755)  # whatever the umask: the user has to come through
    if work.exists() and work.lstat().st_uid != user.uid:
        shutil.rmtree(work)  # it was another user's
    work.mkdir(mode=0o700, exist_ok=True)
    os.chown(work, user.uid, user.gid, follow_symlinks=False)


def _boot() -> str:
    """Name this machine since it was last started; containers on one machine share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return f"{uuid.getnode()} {psutil.boot_time():.0f}"
