"""Named caches: folders that survive between tasks on a bot.

A cache is moved into the working folder of the one task that uses it, and moved back when the task has ended. So it is
never shared by two tasks that run: the second one gets another folder of the same key, a new one if there is none. What
a bot that is killed was using is gone with its working folders.

Nothing in a cache is read or followed, because tasks wrote it. Its folder has a name by chance in a folder that tasks
cannot list if they run as another user; the index, which says what each is, is in the bot's own folder. Links that a
task puts in the place of a cache are removed, not followed.
"""

import asyncio
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from taskyard.bot.state_folder import StateFolder
from taskyard.bot.workdir import remove_tree
from taskyard.private_files import make_file
from taskyard.wire.bot_protocol import CACHES_HELD_MAX, cache_key

#: The defaults: after how long without use a cache is removed, and how much of the disk is kept free.
AGE_SECONDS: Final = 14 * 86_400.0
FREE_PERCENT: Final = 10
#: How often to look for caches to remove while nothing else makes the bot look.
TRIM_SECONDS: Final = 60.0
#: The errors of something that is where a cache, or a folder around it, should be.
_IN_THE_WAY: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.ELOOP})
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CachePathTaken(Exception):
    """A file or folder is already at the path of a cache; the text says what and where."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """When caches are removed: the one that was used least lately goes first."""

    age_s: float = AGE_SECONDS
    free_percent: int = FREE_PERCENT  # removed until so much of the disk is free


@dataclass(frozen=True, slots=True)
class PlacedCache:
    """A cache in the working folder of a task."""

    key: str
    folder: str  # the working folder
    parts: tuple[str, ...]  # the path in it


class _Idle(msgspec.Struct, frozen=True):
    """A cache that no task uses: the name of its folder, its pool and key, and when it was used last."""

    id: str
    pool: str
    key: str
    used_s: float


_INDEX: Final = msgspec.json.Decoder(list[_Idle])


class CacheStore:
    """The caches of one bot. Only the event loop's thread uses this; folders are deleted in other threads."""

    def __init__(self, state: StateFolder, limits: CacheLimits) -> None:
        self._state, self._limits = state, limits
        self._root = state.caches
        self._pool: str | None = None
        self._idle: list[_Idle] = []
        self._used: dict[PlacedCache, None] = {}
        self._garbage: list[str] = []  # folders that are no caches
        self._changed = False
        self._reported: tuple[str, ...] | None = None
        self._trimming: asyncio.Task[None] | None = None
        self._trimmed_at = -TRIM_SECONDS

    def open(self, pool: str) -> None:
        """Use the caches of a pool, and no others; all of them are reported again."""
        if self._pool is None:
            self._idle = self._load()
            self._garbage = self._unknown_folders()
        self._pool, self._changed, self._reported = pool, True, ()

    def report(self) -> tuple[str, ...] | None:
        """Return the keys of all caches, if that is news for the server."""
        if not self._changed:
            return None
        self._changed, before = False, self._reported
        self._reported = self.held()
        return None if self._reported == before else self._reported

    def held(self) -> tuple[str, ...]:
        """Return the keys of all caches of the pool, in use or not."""
        idle = {one.key for one in self._idle if one.pool == self._pool}
        return tuple(sorted(idle | {one.key for one in self._used})[:CACHES_HELD_MAX])

    def place(self, paths: Mapping[str, str], submitter: str, folder: str) -> list[PlacedCache]:
        """Put caches into the working folder of a task, each at its path; raise CachePathTaken or OSError."""
        placed: list[PlacedCache] = []
        try:
            for name, path in paths.items():
                placed.append(self._place(PlacedCache(cache_key(name, submitter), folder, tuple(path.split("/")))))
        except BaseException:
            self.put_back(placed)
            raise
        return placed

    def put_back(self, placed: Sequence[PlacedCache]) -> None:
        """Take caches back out of a working folder; what a task has removed or replaced is gone."""
        for one in placed:
            self._used.pop(one, None)
            id = secrets.token_hex(16)
            with suppress(OSError):
                if self._take_back(one, id):
                    self._idle.append(_Idle(id, self._pool or "", one.key, time.time()))
        if placed:
            self._save()
            self._changed = True

    def tick(self, now: float) -> None:
        """From time to time, remove caches that are too old or take too much space."""
        if now - self._trimmed_at >= TRIM_SECONDS and (self._trimming is None or self._trimming.done()):
            self._trimmed_at = now
            if self._garbage or self._surplus() is not None:
                self._trimming = asyncio.get_running_loop().create_task(self.trim())

    async def trim(self) -> None:
        """Remove caches that are too old or take too much space, and folders that the index does not list."""
        while self._garbage:
            await asyncio.to_thread(self._remove, self._garbage.pop())
        while (surplus := self._surplus()) is not None:
            self._idle.remove(surplus)
            self._save()
            self._changed = True
            await asyncio.to_thread(self._remove, surplus.id)

    async def close(self) -> None:
        """Stop removing caches."""
        if self._trimming is not None:
            self._trimming.cancel()
            await asyncio.gather(self._trimming, return_exceptions=True)

    def _surplus(self) -> _Idle | None:
        """Return the cache to remove next, if any: the one least recently used."""
        oldest = min(self._idle, key=lambda one: one.used_s, default=None)
        if oldest is None:
            return None
        is_old = time.time() - oldest.used_s > self._limits.age_s
        return oldest if is_old or len(self._idle) > CACHES_HELD_MAX or self._is_disk_full() else None

    def _is_disk_full(self) -> bool:
        try:
            disk = shutil.disk_usage(self._root)
        except OSError:
            return False
        return disk.free * 100 < disk.total * self._limits.free_percent

    # Moving folders. A folder is moved by the descriptors of the folders around it, which are opened without following
    # links: so it does not matter what a task puts at a path. If tasks run as another user, only root can move
    # something into and out of the folder of caches, and does so only if that user owns the folder at the other end.

    def _place(self, one: PlacedCache) -> PlacedCache:
        found = max(
            (idle for idle in self._idle if (idle.pool, idle.key) == (self._pool, one.key)),
            key=lambda idle: idle.used_s,
            default=None,
        )
        if found is not None:
            self._idle.remove(found)
            self._save()  # before it is moved: a killed bot must leave no half-changed folder that counts as a cache
        id = self._make() if found is None else found.id
        try:
            self._move_in(id, one)
        except BaseException:
            self._garbage.append(id)
            raise
        self._used[one] = None
        self._changed = self._changed or found is None
        return one

    def _make(self) -> str:
        id = secrets.token_hex(16)
        with self._state.as_bot_user():
            os.mkdir(self._root / id, 0o700)
            if (user := self._state.user) is not None:
                os.chown(self._root / id, user.uid, user.gid)
        return id

    def _move_in(self, id: str, one: PlacedCache) -> None:
        try:
            parent = _open_parent(one, create=True)
            try:
                self._check_owner(parent)
                self._rename(id, self._root, one.parts[-1], parent)
            finally:
                os.close(parent)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                raise CachePathTaken(f"there is something at {'/'.join(one.parts)} already") from error
            raise

    def _take_back(self, one: PlacedCache, id: str) -> bool:
        """Move a cache back; False if what is at its path is no folder any more."""
        parent = _open_parent(one, create=False)
        try:
            self._check_owner(parent)
            with self._state.as_bot_user():
                root = os.open(self._root, _OPEN_FOLDER)
                try:
                    os.rename(one.parts[-1], id, src_dir_fd=parent, dst_dir_fd=root)
                    return self._is_cache(id, root)
                finally:
                    os.close(root)
        finally:
            os.close(parent)

    def _is_cache(self, id: str, root: int) -> bool:
        """Whether what was moved back is a folder of the user of the tasks; else remove it."""
        found = os.stat(id, dir_fd=root, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == self._owner:
            folder = os.open(id, _OPEN_FOLDER, dir_fd=root)
            os.fchmod(folder, 0o700)
            os.close(folder)
            return True
        if stat.S_ISDIR(found.st_mode):
            self._garbage.append(id)
        else:
            os.unlink(id, dir_fd=root)
        return False

    def _rename(self, name: str, source: Path, target: str, parent: int) -> None:
        with self._state.as_bot_user():
            folder = os.open(source, _OPEN_FOLDER)
            try:
                os.rename(name, target, src_dir_fd=folder, dst_dir_fd=parent)
            finally:
                os.close(folder)

    @property
    def _owner(self) -> int:
        return os.geteuid() if self._state.user is None else self._state.user.uid

    def _check_owner(self, parent: int) -> None:
        if os.fstat(parent).st_uid != self._owner:
            raise PermissionError("the folder around a cache does not belong to the user of the tasks")

    def _remove(self, id: str) -> None:
        """Delete a folder: its content as the user of the tasks, who owns it."""
        remove_tree(str(self._root / id))
        with self._state.as_bot_user(), suppress(OSError):
            os.rmdir(self._root / id)

    # The index.

    def _load(self) -> list[_Idle]:
        try:
            with self._state.as_bot_user():
                found = _INDEX.decode(self._state.cache_index.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return []  # without it, all folders are removed
        return [one for one in found if _is_id(one.id) and (self._root / one.id).is_dir()]

    def _unknown_folders(self) -> list[str]:
        known = {one.id for one in self._idle}
        with self._state.as_bot_user():
            return [name for name in os.listdir(self._root) if name not in known]

    def _save(self) -> None:
        file = self._state.cache_index
        new = file.with_suffix(".new")
        with self._state.as_bot_user(), suppress(OSError):  # on a full disk: a folder without index is removed
            new.unlink(missing_ok=True)
            make_file(new)
            new.write_bytes(msgspec.json.encode(self._idle))
            new.replace(file)


def _is_id(text: str) -> bool:
    return len(text) == 32 and all(one in "0123456789abcdef" for one in text)


def _open_parent(one: PlacedCache, *, create: bool) -> int:
    """Open the folder around a cache in a working folder, without following links."""
    found = os.open(one.folder, _OPEN_FOLDER)
    try:
        for part in one.parts[:-1]:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=found)
            inner = os.open(part, _OPEN_FOLDER, dir_fd=found)
            os.close(found)
            found = inner
    except BaseException:
        os.close(found)
        raise
    return found
