"""The user as whom tasks run, where that is another than the bot's own.

The agent stays what it is, root, but looks at files as that user: whatever a task puts in the place of a file, a link
for example, the agent can read and write no more than the task itself. The runner becomes that user for good, and with
it all that it starts.
"""

import ctypes
import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

#: Asks for a number without changing it.
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
        """What its programs find about themselves."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    @property
    def written(self) -> str:
        """Its numbers, for a command line."""
        return ":".join(str(number) for number in (self.uid, self.gid, *self.groups))

    def take_files(self) -> None:
        """Look at files as this user from now on, in this thread and those that it starts."""
        # What is loaded only when it is needed may be where this user cannot read.
        import concurrent.futures.thread  # noqa: F401, PLC0415
        import encodings.idna  # noqa: F401, PLC0415

        os.setgroups(self.groups)
        _set_files(self.uid, self.gid)

    @contextmanager
    def own_files(self) -> Iterator[None]:
        """Look at files as root for a moment."""
        _set_files(0, 0)
        try:
            yield
        finally:
            _set_files(self.uid, self.gid)


def find(name: str) -> TaskUser:
    """Find a user as whom tasks can run."""
    if sys.platform != "linux":
        raise Unsuitable("tasks run as another user on Linux only: start the bot as that user, without --user")
    if os.geteuid() != 0:
        raise Unsuitable("only root can run tasks as another user: start the bot as root, or leave --user out")
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise Unsuitable(f"there is no user {name!r} on this machine: make one, or name another with --user") from None
    if found.pw_uid == 0:
        raise Unsuitable(f"{name!r} is root: name a user with no rights of its own with --user")
    groups = tuple(os.getgrouplist(name, found.pw_gid))
    return TaskUser(name, found.pw_uid, found.pw_gid, groups, found.pw_dir or "/", found.pw_shell or "/bin/sh")


def become(written: str) -> None:
    """Be the user with these numbers for good, in a folder that it can look into."""
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
    # The group first: whoever is no longer root for files may not choose one.
    libc.setfsgid(ctypes.c_uint(gid))
    libc.setfsuid(ctypes.c_uint(uid))
    is_now = (libc.setfsuid(ctypes.c_uint(_NO_CHANGE)), libc.setfsgid(ctypes.c_uint(_NO_CHANGE)))
    if is_now != (uid, gid):
        raise OSError(f"this process cannot look at files as user {uid}: it needs the capabilities of root")
