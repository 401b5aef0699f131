"""Files of attempts: what a task takes is downloaded before it begins, what it leaves is uploaded after it has ended.

Both happen on threads of their own, with the token of the attempt, and neither uses a slot of the bot. While the server
is away, or cannot use its store, they wait for it, as long as the attempt is leased. With `--user` the threads have the
rights of the tasks.
"""

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from taskyard.bot.attempts import LeasedAttempt, ReportTrouble
from taskyard.bot.config import BotConfig
from taskyard.bot.payloads import Artifact, FileSpec
from taskyard.bot.server_client import PAUSE_SECONDS, PAUSE_SECONDS_MAX, TRIES_MAX, InputsUnavailable, MachineFault
from taskyard.files.collect import Changed, collect, missing
from taskyard.files.digests import BadTree, Tree, laid_over, part_of, shown
from taskyard.sdk.backoff import backoff_s
from taskyard.sdk.errors import ClientError, Overloaded, ServerFault, Unreachable, Unreadable
from taskyard.sdk.files import Upload, download, read_stored_tree, upload
from taskyard.sdk.routes import ApiSession
from taskyard.wire.api import InputTrees

#: How long one request may take: a chunk over a slow line.
TIMEOUT_SECONDS: Final = 90.0
#: How many attempts have files moved at once: each takes some threads, and the memory of some chunks.
TRANSFERS_MAX: Final = 3
#: How many artifacts go into one request.
ARTIFACTS_MAX: Final = 1_000
#: What the machine of this bot lacks, not the task: another bot may have it.
_MACHINE_ERRORS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
T = TypeVar("T")


class FileTransfers:
    """Moves the files of attempts of one bot."""

    def __init__(self, config: BotConfig, pool: str, report_trouble: ReportTrouble) -> None:
        self._config = config
        self._pool = pool  # of this bot
        self._report_trouble = report_trouble
        self._free = asyncio.Semaphore(TRANSFERS_MAX)

    async def fetch(self, attempt: LeasedAttempt, folder: str) -> None:
        """Write what an attempt takes into its working folder."""
        async with self._free:
            began, tell = time.monotonic(), self._tell(attempt)
            await _on_thread(lambda stop: self._fetch(attempt, folder, Patience(stop, tell)))
        attempt.download_ms = round((time.monotonic() - began) * 1000)

    async def keep(
        self, attempt: LeasedAttempt, folder: str, spec: FileSpec, *, succeeded: bool
    ) -> tuple[list[str], str | None]:
        """Store what an attempt left, and say so to the server; return what is wrong with it, and its digest."""
        async with self._free:
            began, tell = time.monotonic(), self._tell(attempt)
            kept = await _on_thread(lambda stop: self._keep(attempt, folder, spec, succeeded, Patience(stop, tell)))
        attempt.upload_ms = round((time.monotonic() - began) * 1000)
        return kept

    def _tell(self, attempt: LeasedAttempt) -> Callable[[str], None]:
        """Return what says, from another thread, why the files of an attempt wait."""
        loop = asyncio.get_running_loop()

        def tell(why: str) -> None:
            loop.call_soon_threadsafe(self._report_trouble, f"the files of an attempt wait: {why}", attempt)

        return tell

    def _fetch(self, attempt: LeasedAttempt, folder: str, patience: "Patience") -> None:
        session = self._session(attempt)
        try:
            tree, pools = patience.repeat(lambda: _inputs(session, attempt.lease.task))
            patience.repeat(lambda: _download_anew(session, pools, tree, folder, patience.stop))
        except BadTree as bad:
            raise InputsUnavailable(f"inputs: {'; '.join(bad.faults)}") from bad
        except ClientError as error:
            raise InputsUnavailable(f"the inputs cannot be fetched: {error}") from error
        except OSError as error:
            if isinstance(error, InterruptedError):
                raise
            kind = MachineFault if error.errno in _MACHINE_ERRORS else InputsUnavailable
            raise kind(f"the inputs cannot be written: {error.strerror or error}") from error
        finally:
            session.close()

    def _keep(
        self, attempt: LeasedAttempt, folder: str, spec: FileSpec, succeeded: bool, patience: "Patience"
    ) -> tuple[list[str], str | None]:
        digest = None
        faults = [f"outputs: there is no {shown(one)}" for one in missing(folder, spec.patterns)] if succeeded else []
        session = self._session(attempt)
        try:
            tree = collect(folder, spec.patterns, patience.stop)
            if tree.files or tree.links or tree.folders:
                done = patience.repeat(lambda: upload(session, self._pool, tree, folder, patience.stop))
                digest = done.tree.digest
                path = f"/tasks/{attempt.lease.task}/files"
                for body in _left(self._pool, tree, done, spec):
                    patience.repeat(lambda body=body: session.put_raw(path, body, "application/json"))  # type: ignore[misc]
        except BadTree as bad:
            faults += [f"outputs: {fault}" for fault in bad.faults]
        except (Changed, ClientError) as error:
            faults.append(f"the outputs cannot be stored: {error}")
        except OSError as error:
            if isinstance(error, InterruptedError):
                raise
            faults.append(f"the outputs cannot be read: {error.strerror or error}")
        finally:
            session.close()
        return faults, digest

    def _session(self, attempt: LeasedAttempt) -> ApiSession:
        return ApiSession(self._config.servers, attempt.lease.token, TIMEOUT_SECONDS, tls=self._config.tls)


def _inputs(session: ApiSession, task: str) -> tuple[Tree, dict[str, str]]:
    """Read the trees that a task takes, laid over each other, and the pool that has each chunk."""
    made = Tree()
    pools: dict[str, str] = {}
    for one in session.get(f"/tasks/{task}/inputs/files", InputTrees).items:
        if not one.tree:
            raise BadTree([f"{shown(one.label or '')} has kept no files"])
        tree = part_of(read_stored_tree(session, one.pool, one.tree), one.path or "", one.to)
        pools |= dict.fromkeys(tree.chunks(), one.pool)
        made = laid_over([made, tree])  # one after the other: many large trees do not fit into memory
    return made, pools


def _download_anew(
    session: ApiSession, pools: dict[str, str], tree: Tree, folder: str, stop: Callable[[], bool]
) -> None:
    """Write a tree into a folder of which an earlier try may have filled a part."""
    download(session, pools, tree, folder, fresh=not os.listdir(folder), stop=stop)


def _left(pool: str, tree: Tree, done: Upload, spec: FileSpec) -> Iterator[bytes]:
    """Tell the server what an attempt leaves, in as many requests as the artifacts need."""
    kept = {one.path for one in tree.files}
    artifacts = [
        {"name": one.name, "tree": done.tree.digest, "path": one.path, "content_type": one.type}
        for one in spec.outputs
        if isinstance(one, Artifact) and one.path in kept
    ]
    for first in range(0, max(1, len(artifacts)), ARTIFACTS_MAX):
        some = artifacts[first : first + ARTIFACTS_MAX]
        yield msgspec.json.encode({"pool": pool, "tree": done.tree.digest, "artifacts": some})


async def _on_thread(act: Callable[[Callable[[], bool]], T]) -> T:
    """Run `act` on a thread. If this is cancelled, the thread is told to stop, and waited for."""
    stopped = False
    task = asyncio.ensure_future(asyncio.to_thread(act, lambda: stopped))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stopped = True
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it was only told to stop
        raise


class Patience:
    """Repeats requests, until `stop` becomes true; says once why it does."""

    def __init__(self, stop: Callable[[], bool], tell: Callable[[str], None]) -> None:
        self.stop = stop
        self._tell = tell
        self._has_told = False

    def repeat(self, act: Callable[[], T]) -> T:
        """Repeat a request while the server is away or has no use of its store, and some times if it fails."""
        away = failed = 0
        while True:
            try:
                return act()
            except Unreachable:
                away += 1
            except Overloaded as error:
                away += 1
                if not self._has_told:
                    self._has_told = True
                    self._tell(str(error))
            except (ServerFault, Unreadable):
                failed += 1
                if failed == TRIES_MAX:
                    raise
            self._pause(backoff_s(away + failed, PAUSE_SECONDS, PAUSE_SECONDS_MAX))

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.stop():
                raise InterruptedError
            time.sleep(min(PAUSE_SECONDS, seconds))
