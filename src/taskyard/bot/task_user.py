"""The user that tasks run as, if that is not the bot's own.

The agent stays root, but accesses files as that user: whatever a task puts in the place of a file, such as a link, the
agent can read and write no more than the task itself. The runner becomes that user for good, with everything that it
starts.
"""

import ctypes
import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

#: An invalid id: the call returns the current one and changes nothing.
_NO_CHANGE: Final = 0xFFFFFFFF


class Unsuitable(Exception):
    """Tasks cannot run as that user; the text says why."""


@dataclass(frozen=True, slots=True)
class TaskUser:
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name the user to its programs."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    @property
    def written(self) -> str:
        """Its ids, for a command line."""
        return ":".join(str(number) for number in (self.uid, self.gid, *self.groups))

    def use_files_as_user(self) -> None:
        """Access files as this user from now on, in this thread and threads that it starts."""
        # Modules that are loaded late may be where this user cannot read.
        import concurrent.futures.thread  # noqa: F401, PLC0415
        import encodings.idna  # noqa: F401, PLC0415
        import http.client  # noqa: F401, PLC0415
        import ssl  # noqa: F401, PLC0415

        from taskyard.bot import files  # noqa: F401, PLC0415

        os.setgroups(self.groups)
        _set_files(self.uid, self.gid)

    @contextmanager
    def as_bot_user(self) -> Iterator[None]:
        """Access files as root for a moment."""
        _set_files(0, 0)
        try:
            yield
        finally:
            _set_files(self.uid, self.gid)


def find(name: str) -> TaskUser:
    """Find a user that tasks can run as."""
    if sys.platform != "linux":
        raise Unsuitable("tasks run as another user on Linux only: start the bot as that user, without --user")
    if os.geteuid() != 0:
        raise Unsuitable("only root can run tasks as another user: start the bot as root, or leave --user out")
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise Unsuitable(f"there is no user {name!r} on this machine: make one, or name another with --user") from None
    if found.pw_uid == 0:
        raise Unsuitable(f"{name!r} is root: name a user without special rights with --user")
    groups = tuple(os.getgrouplist(name, found.pw_gid))
    return TaskUser(name, found.pw_uid, found.pw_gid, groups, found.pw_dir or "/", found.pw_shell or "/bin/sh")


def become(written: str) -> None:
    """Become the user with these ids for good, in a folder that it can read."""
    uid, gid, *groups = (int(number) for number in written.split(":"))
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    try:
        os.close(os.open(".", os.O_RDONLY))
        os.chdir(".")
    except OSError:
        os.chdir("/")


def _set_files(uid: int, gid: int) -> None:
    libc = ctypes.CDLL(None)
    # The group first: a process that is not root for files cannot change it.
    libc.setfsgid(ctypes.c_uint(gid))
    libc.setfsuid(ctypes.c_uint(uid))
    is_now = (libc.setfsuid(ctypes.c_uint(_NO_CHANGE)), libc.setfsgid(ctypes.c_uint(_NO_CHANGE)))
    if is_now != (uid, gid):
        raise OSError(f"this process cannot access files as user {uid}: it needs the capabilities of root")
