"""How much memory an attempt may use, enforced where the kernel allows it.

With cgroup v2, if this process may make groups there: a group of its own for each attempt, so its processes together
use no more, and the kernel ends all of them if they need more. Otherwise a limit (RLIMIT_DATA) for each of its
processes by itself: a program that wants more gets an error when it asks for it.
"""

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
_ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "taskyard-"


class MemoryLimit:
    """The limit of one attempt; `folder` is its group, if it has one."""

    def __init__(self, size_mb: int, folder: Path | None = None) -> None:
        self.size_mb = size_mb
        self.folder = folder

    def enter(self) -> None:
        """Put this process under the limit; called in the new process, before it becomes the program."""
        if self.folder is not None:
            with suppress(OSError):
                (self.folder / "cgroup.procs").write_text("0")
                return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (self.size_mb * MIB, self.size_mb * MIB))

    def was_hit(self) -> bool:
        """Whether the kernel ended a process because of the limit; known only with a group."""
        if self.folder is None:
            return False
        with suppress(OSError, ValueError):
            lines = (self.folder / "memory.events").read_text().splitlines()
            return any(line.startswith("oom_kill ") and int(line.split()[1]) > 0 for line in lines)
        return False

    def close(self) -> None:
        """Remove the group; everything in it has ended."""
        if self.folder is not None:
            with suppress(OSError):
                self.folder.rmdir()


class MemoryLimits:
    """Makes the limits of all attempts of one runner."""

    def __init__(self, parent: Path | None) -> None:
        self._parent = parent  # the group in which it makes groups
        if parent is not None:
            _remove_left(parent)

    def create(self, name: str, size_mb: int) -> MemoryLimit:
        """Make a limit. Without a group, the limit holds for each process by itself."""
        folder = None if self._parent is None else self._parent / f"{_PREFIX}{os.getpid()}-{name}"
        if folder is None or not _make_group(folder, size_mb):
            return MemoryLimit(size_mb)
        return MemoryLimit(size_mb, folder)


def find_parent(root: Path = _ROOT, own: str | None = None) -> Path | None:
    """Find the group in which this process may make groups with a limit of memory; None if there is none.

    That is its own group, or the one around it: a group with processes cannot have groups with limits.
    """
    path = _own_path() if own is None else own
    if path is None:
        return None
    group = root / path.strip("/")
    candidates = [group, group.parent] if group != root else [group]
    return next((one for one in candidates if _limits_memory(one) and os.access(one, os.W_OK)), None)


def _own_path() -> str | None:
    """Return the path of this process in the hierarchy of cgroup v2."""
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    return None


def _limits_memory(group: Path) -> bool:
    """Whether groups inside a group can have a limit of memory, after allowing it if that is possible."""
    control = group / "cgroup.subtree_control"
    with suppress(OSError):
        if "memory" not in control.read_text().split():
            control.write_text("+memory")
        return "memory" in control.read_text().split()
    return False


def _make_group(folder: Path, size_mb: int) -> bool:
    try:
        folder.mkdir()
        (folder / "memory.max").write_text(str(size_mb * MIB))
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        return False
    # What a kernel does not know is left out: without swap there is nothing to limit.
    for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
        with suppress(OSError):
            if (folder / name).exists():
                (folder / name).write_text(value)
    return True


def _remove_left(parent: Path) -> None:
    """Remove the empty groups of runners that are gone."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-", 1)[0]
        if not Path(f"/proc/{owner}").exists():
            with suppress(OSError):
                folder.rmdir()
