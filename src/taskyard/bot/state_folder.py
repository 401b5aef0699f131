"""The state folder of one bot: a lock, an id, and the working folders of running attempts.

Only the id, the begun files, the file of an engine, the caches and the token of an enrolled bot outlive the bot
process; the next instance clears the rest.
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

from taskyard.bot.secret_files import SecretFiles
from taskyard.bot.task_user import TaskUser
from taskyard.bot.workdir import remove_tree
from taskyard.private_files import make_file, make_folder

#: The length of a folder's name: enough to tell apart a few bots that were given one name.
NAME_DIGITS: Final = 10
#: The working folders of tasks that run as another user than the bot. Only root can create something there.
WORK_FOLDERS: Final = Path("/var/lib/taskyard/work")
#: The caches of such bots. Tasks can reach a folder below it only if they know its name, which they do not.
CACHE_FOLDERS: Final = Path("/var/lib/taskyard/caches")
#: The beginning of the lock file, so that it is not mistaken for something else.
_LOCK_TEXT: Final = "the process of the bot whose folder this is: "


class StateFolderInUse(Exception):
    """Another bot uses this folder."""


class StateFolder:
    """A bot's folder, locked as long as this object is open."""

    def __init__(self, folder: Path, user: TaskUser | None = None) -> None:
        make_folder(folder)
        make_file(folder / "lock")
        self.user = user
        self.work = folder.resolve() / "work" if user is None else _own_folder(WORK_FOLDERS, folder.resolve())
        self.caches = folder.resolve() / "caches" if user is None else _own_folder(CACHE_FOLDERS, folder.resolve())
        self.cache_index = folder.resolve() / "caches.json"  # what each folder of caches is
        self.secret_files = SecretFiles(self.work)
        self.begun = folder.resolve() / "begun"  # which attempts each instance has begun
        self.engine_file = folder.resolve() / "engine"  # what an engine whose attempts outlive the bot has in hand
        self._lock = (folder / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.seek(0)
            owner = self._lock.read(200).removeprefix(_LOCK_TEXT).strip() or "unknown"
            self._lock.close()
            raise StateFolderInUse(
                f"another bot uses the state folder {folder} (process {owner}); give this one its own"
            ) from error
        self._lock.truncate(0)
        self._lock.write(f"{_LOCK_TEXT}{os.getpid()}\n")
        self._lock.flush()
        self._id_file = folder.resolve() / "mark"
        if user is not None:
            _make_work_folder(self.work, user)
        _make_cache_folder(self.caches, user)

    def session_prefix(self, marker: str, engine: str) -> str:
        """Return the name of this folder, on this machine since it was started, for names of sessions.

        The same name twice means that the bot before this one had this very folder, and that whatever it left is found
        by `marker`. So a copy of the folder has another name: on this machine because of its path and its lock, on
        another machine because of the boot id, even if that machine is itself a copy. The engine counts, too: one does
        not know what another one runs.
        """
        try:
            word = self._id_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            word = secrets.token_hex(8)
            make_file(self._id_file)
            self._id_file.write_text(word, encoding="utf-8")
        lock = os.fstat(self._lock.fileno())
        identity = "\n".join((word, marker, engine, _boot_id(), f"{lock.st_dev}:{lock.st_ino}"))
        return hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:NAME_DIGITS]

    @property
    def enrolment(self) -> Path:
        """The file that keeps the token of an enrolled bot."""
        return self._id_file.with_name("enrolment")

    def clear_work(self) -> None:
        """Remove what the last instance left, and start with an empty working folder."""
        self.secret_files.clear()
        remove_tree(str(self.work))
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)

    def close(self) -> None:
        """Release the folder."""
        self.secret_files.clear()
        remove_tree(str(self.work))
        if self.user is not None:
            # The user of the tasks has removed its content, and cannot remove the folder itself.
            with self.as_bot_user(), suppress(OSError):
                self.work.rmdir()
        self._lock.close()

    def as_bot_user(self) -> AbstractContextManager[None]:
        """Access files as the bot's own user for a moment: this folder is not for the user of the tasks."""
        return nullcontext() if self.user is None else self.user.as_bot_user()


def _own_folder(shared: Path, folder: Path) -> Path:
    """Return a folder of a bot whose tasks run as another user, which has no access to the bot's own folder."""
    return shared / hashlib.sha256(os.fsencode(folder)).hexdigest()[:NAME_DIGITS]


def _make_work_folder(work: Path, user: TaskUser) -> None:
    """Create a working folder that belongs to the user."""
    _make_passable(WORK_FOLDERS.parent, WORK_FOLDERS)
    if work.exists() and work.lstat().st_uid != user.uid:
        shutil.rmtree(work)  # it belonged to another user
    work.mkdir(mode=0o700, exist_ok=True)
    os.chown(work, user.uid, user.gid, follow_symlinks=False)


def _make_cache_folder(caches: Path, user: TaskUser | None) -> None:
    """Create the folder of caches: for the bot alone, or such that another user can pass through but not list it."""
    if user is None:
        make_folder(caches)
        return
    _make_passable(CACHE_FOLDERS.parent, CACHE_FOLDERS)
    caches.mkdir(mode=0o700, exist_ok=True)
    caches.chmod(0o711)


def _make_passable(*folders: Path) -> None:
    for one in folders:
        if not one.is_dir():
            one.mkdir(parents=True, exist_ok=True)
            one.chmod(0o755)  # whatever the umask: the user must be able to pass through


def _boot_id() -> str:
    """Identify this machine since its last start; containers on one machine share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return f"{uuid.getnode()} {psutil.boot_time():.0f}"
