"""The engine: one database, one thread that writes to it, and everything that has to happen by itself.

Any thread may call it. Whatever it answers is durable. It takes plain values and commands, and gives outcomes; a
refusal is an outcome, and only what is nobody's fault is raised.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from taskyard.core import ids
from taskyard.core.fleet import LEASE_MAX_MS, LEASE_MIN_MS, LEASE_MS
from taskyard.core.ids import Key
from taskyard.core.structs import struct_replace
from taskyard.engine import validate
from taskyard.engine.background import BackgroundJobs, BackgroundThread
from taskyard.engine.bulk_load import Pages
from taskyard.engine.clock import Clock, SystemClock
from taskyard.engine.errors import Unavailable, outages
from taskyard.engine.extend import GraphExtension
from taskyard.engine.failpoints import Boundary
from taskyard.engine.file_lock import FileLock
from taskyard.engine.rerun_graph import GraphRerun
from taskyard.engine.subgraphs import SubgraphStarter
from taskyard.engine.submit import GraphSubmission, KeyGenerator, gc_paused_for
from taskyard.engine.wide_commands import CommandOutcome, WideCommands
from taskyard.engine.writer import Act, Command, Writer, WriterThread, answer_of
from taskyard.lifecycle import selection
from taskyard.lifecycle.admission import pools
from taskyard.lifecycle.admission.scheduler import Admission, PassOutcome
from taskyard.lifecycle.commands import (
    Approve,
    Cancel,
    Done,
    Goodbye,
    Hello,
    NeedsSearch,
    Poll,
    Publish,
    Refusal,
    Rerun,
)
from taskyard.lifecycle.doctor import check, repair
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.idempotency import CheckPools, Submitter, allow_any_pool, run_once
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.report import publish
from taskyard.lifecycle.submit import Submitted
from taskyard.lifecycle.transaction import FollowUp, ServerIdentity, Transaction
from taskyard.store.connection import Repo, Store, open_server_lock, open_store
from taskyard.views import graphs as outlines
from taskyard.views import history as stories
from taskyard.views.graphs import GraphOutline
from taskyard.views.history import TaskHistory

#: How long a thread that only thinks may keep the others waiting. The writer asks for its turn with every statement:
#: at Python's own 5 ms, a check of a large document would make a poll that takes 2 ms wait for hundreds.
SWITCH_S: Final = 0.000_5

_LIMIT: Final = Boundary.LIMIT
Answer = TypeVar("Answer")


class Engine:
    """One database and all that happens in it."""

    def __init__(  # noqa: PLR0913 - each is a setting of its own
        self,
        store: Store,
        clock: Clock | None = None,
        *,
        scheduler_id: str = "taskyard",
        lease_ms: int = LEASE_MS,
        name: str = "",
        events: bool = True,
        ticks: bool = True,
    ) -> None:
        if not LEASE_MIN_MS <= lease_ms <= LEASE_MAX_MS:
            raise ValueError(f"a lease lasts from {LEASE_MIN_MS} to {LEASE_MAX_MS} ms, not {lease_ms}")
        self.store = store
        self.lease_ms = lease_ms  # how long bots may run attempts without renewing
        self.clock = clock or SystemClock()
        self.scheduler_id = scheduler_id
        with (
            suppress(Unavailable),
            outages(),
            store.read() as repo,
        ):  # a database that is away is asked by the first beat
            self.clock.follow(repo.servers.database_time)
        #: Are told, by the thread that writes, which graphs came into another state or to rest. A hint: another server
        #: may have done it, and then nobody is told.
        self.listeners: list[Callable[[Collection[int]], None]] = []
        self._file_lock: FileLock | None = None
        self._writer = Writer(store, self.clock, self._after_commit, lease_ms, ServerIdentity(name, self.clock.now()))
        self.writer_thread = WriterThread(self._writer)
        keys, pages = KeyGenerator(self.clock), Pages(self.writer_thread, self.clock)
        self._submission = GraphSubmission(self.writer_thread, store, self.clock, keys, pages, scheduler_id)
        self._extension = GraphExtension(self.writer_thread, store, self.clock, keys, pages)
        self._rerun = GraphRerun(store, self.clock, keys, self._submission)
        self.wide_commands = WideCommands(self.writer_thread, store)
        word = self.clock.word()
        self._server_lock = open_server_lock(store.url, word)
        self._admission = Admission(self._write_pass, store.read, self.clock.now, word, server_lock=self._server_lock)
        self._subgraphs = SubgraphStarter(self._submission, store, self.transact)
        jobs = BackgroundJobs(
            self.transact, store, self.clock, self._admission, self._writer.parked_polls, self._subgraphs
        )
        self.background = BackgroundThread(jobs, self.clock, events, ticks)

    @classmethod
    def open(
        cls,
        url: str,
        clock: Clock | None = None,
        *,
        scheduler_id: str = "taskyard",
        lease_ms: int = LEASE_MS,
        name: str = "",
    ) -> Self:
        """Bring the database at `url` to the newest version and open it; a file may have one engine at a time.

        `name` tells servers of one database apart, and is the same whenever this one is started.
        """
        from taskyard.store.migrate import upgrade  # noqa: PLC0415 - who does not migrate does not pay for it

        file_lock = FileLock(url)
        try:
            upgrade(url)
            store = open_store(url)
            if file_lock.is_exclusive:
                _clear_pass_lock(store)
            engine = cls(store, clock, scheduler_id=scheduler_id, lease_ms=lease_ms, name=name)
        except BaseException:
            file_lock.leave()
            raise
        engine._file_lock = file_lock
        return engine

    # Its life.

    def start(self) -> None:
        """Begin to answer, and to do what has to be done."""
        sys.setswitchinterval(SWITCH_S)
        self.writer_thread.start()
        self.background.start()

    def stop(self) -> None:
        """Answer what was accepted, and end. A writer that is late keeps the database as long as it lives."""
        self._subgraphs.stop()
        self.background.stop()
        if self._server_lock is not None:
            self._server_lock.close()
        if self.writer_thread.stop():
            self.store.close()
            if self._file_lock is not None:
                self._file_lock.leave()

    def mark_serving(self) -> None:
        """Count from now on as up: only from here on could bots renew or report again."""
        self._writer.server = struct_replace(self._writer.server, began_ms=self.clock.now())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What people ask for.

    def submit(
        self,
        document: object,
        *,
        graph_id: str | None = None,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: CheckPools = allow_any_pool,
    ) -> Submitted | Refusal:
        """Store a graph. Repeated with the same id, or with the same key and no id, it is an echo.

        Python functions of different submitters never share a worker process; the submitter is the actor unless given.
        `may` is told the pools of the graph, and raises if the sender may not submit there.
        """
        refusal = validate.check_submission(graph_id, key, actor, submitter)
        if refusal is not None:
            return refusal
        with outages(), gc_paused_for(document):
            return self._submission.submit(document, graph_id, key, Submitter(actor, submitter or actor, may))

    def extend(
        self,
        graph_id: str,
        document: object,
        *,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: CheckPools = allow_any_pool,
    ) -> Submitted | Refusal:
        """Add tasks to a graph; those that it has already, with the same definition, are echoes."""
        refusal = validate.check_request(graph_id=graph_id, key=key, actor=actor, submitter=submitter)
        if refusal is not None:
            return refusal
        with outages(), gc_paused_for(document):
            return self._extension.extend(graph_id, document, Submitter(actor, submitter or actor, may), key)

    def cancel(self, command: Cancel) -> CommandOutcome:
        """End a task, a task with everything behind it, or a graph."""
        answer: CommandOutcome | NeedsSearch = answer_of(self.ask(Cancel, command))
        return self.wide_commands.go(command) if isinstance(answer, NeedsSearch) else answer

    def rerun(self, command: Rerun) -> CommandOutcome:
        """Try a task again, or all that failed in a graph."""
        answer: CommandOutcome | NeedsSearch = answer_of(self.ask(Rerun, command))
        return self.wide_commands.go(command) if isinstance(answer, NeedsSearch) else answer

    def approve(self, command: Approve) -> Done | Refusal:
        """Decide about an approval that waits for a person."""
        answer: Done | Refusal = answer_of(self.ask(Approve, command))
        return answer

    def renew(
        self,
        graph_id: str,
        labels: tuple[str, ...],
        *,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: CheckPools = allow_any_pool,
    ) -> Submitted | Refusal:
        """Store a graph that runs a settled one again from some tasks on, and takes over what is before them.

        `may` is told in which pools something is going to run, and raises if that may not be.
        """
        refusal = validate.check_request(graph_id=graph_id, labels=labels, key=key, actor=actor, submitter=submitter)
        sender = Submitter(actor, submitter or actor, may)
        return refusal or self._rerun.renew(ids.key_of(graph_id), labels, key, sender)

    def set_pool(
        self, name: str, capacity: int | None = None, *, from_bots: bool = False, actor: str = ""
    ) -> Refusal | None:
        """Give a pool a capacity, fixed or that of its live bots, or none; the next pass keeps to it."""
        refusal = validate.check_request(name=name, capacity=capacity, from_bots=from_bots, actor=actor)
        if refusal is not None:
            return refusal
        left = self.transact(lambda transaction: pools.set_pool(transaction, name, capacity, from_bots, actor), _LIMIT)
        return left if isinstance(left, Refusal) else None

    def set_limit(self, name: str, total: int, *, actor: str = "", key: str = "") -> Refusal | None:
        """Say how much there is of something that tasks share, wherever they run."""
        refusal = validate.check_request(name=name, total=total, actor=actor, key=key)
        said = ("set_limit", name, total)
        return refusal or self._once(key, said, lambda transaction: pools.set_limit(transaction, name, total, actor))

    def set_stake_after(
        self, name: str, stake_after_ms: int | None, *, actor: str = "", key: str = ""
    ) -> Refusal | None:
        """Say how long mutexes hold a task before no younger one passes it at this key; None: always one may."""
        refusal = validate.check_request(name=name, stake_after_ms=stake_after_ms, actor=actor, key=key)
        said = ("set_stake_after", name, stake_after_ms)
        return refusal or self._once(
            key, said, lambda transaction: pools.set_stake_after(transaction, name, stake_after_ms, actor)
        )

    def graph(self, graph_id: str) -> GraphOutline | Refusal:
        """Tell where a graph stands, and whether it is settled."""
        refusal = validate.check_request(graph_id=graph_id)
        if refusal is not None:
            return refusal
        id = ids.key_of(graph_id)
        with outages(), self.store.read() as repo:
            return outlines.outline(repo, id) or selection.not_found("graph", id)

    def story(self, task_id: str) -> TaskHistory | Refusal:
        """Tell everything that happened to a task."""
        refusal = validate.check_request(task_id=task_id)
        if refusal is not None:
            return refusal
        id = ids.key_of(task_id)
        with outages(), self.store.read() as repo:
            return stories.read_history(repo, id) if _is_shown(repo, id) else selection.not_found("task", id)

    def doctor(self) -> list[Finding]:
        """Recount every stored number as it is at one moment; say what does not follow from the rest."""
        now = self.clock.now()
        with outages(), self.store.read() as repo:
            return check.doctor(repo, now)

    def repair(self, findings: Iterable[Finding], actor: str = "") -> int | Refusal:
        """Mend what the doctor found and can be mended; say how many findings that were."""
        refusal = validate.check_request(actor=actor)
        return refusal or repair.repair(lambda act: self.transact(act, Boundary.REPAIR), findings, actor)

    def publish(self, command: Publish, key: str = "") -> Refusal | None:
        """Keep what a running task says of itself: its result, its progress, what its next attempt should get."""
        refusal = validate.check(Publish, command) or validate.check_request(key=key)
        return refusal or self.transact(
            lambda transaction: run_once(
                transaction, key, command, lambda _: publish(transaction, command), lambda _: None
            )
        )

    # What bots say.

    def hello(self, command: Hello) -> Refusal | None:
        """Begin a bot's session, or take note of what changed about it; refuse a session that was replaced."""
        answer: Refusal | None = answer_of(self.ask(Hello, command))
        return answer

    def poll(self, command: Poll) -> PollOutcome | Refusal:
        """Take a bot's results and renewals, and give it tasks."""
        answer: PollOutcome | Refusal = answer_of(self.ask(Poll, command))
        return answer

    def goodbye(self, command: Goodbye) -> Refusal | None:
        """End a bot's session."""
        answer: Refusal | None = answer_of(self.ask(Goodbye, command))
        return answer

    def leave(self, poll: "Future[Any]") -> None:
        """Have a poll answered that was asked to wait and has waited for long enough."""
        self.writer_thread.leave(poll)

    def ask(self, kind: type, command: Command, *, decoded: bool = False) -> "Future[Any]":
        """Have a command of a kind carried out together with others. One that has faults is answered at once.

        `decoded`: the command is a poll that was decoded within the bounds of its fields.
        """
        if decoded and isinstance(command, Poll):
            refusal = validate.check_decoded(command)
        else:
            refusal = validate.check(kind, command)
        if refusal is not None:
            return _answered(refusal)
        if isinstance(command, Poll) and command.want and not command.poll:
            # Should nobody hear of the commit, all of it is carried out again, and has to give the same leases.
            command = struct_replace(command, poll=self.clock.word())
        return self.writer_thread.put(command)

    # What happens by itself, and can be made to happen at any time.

    def schedule(self) -> PassOutcome:
        """Let in every pending task that may go, within the bounds of one call."""
        return self._admission.schedule()

    def transact(self, act: Act[Answer], boundary: Boundary = Boundary.OTHER) -> Answer:
        """Carry out `act` in a transaction of its own. It has to bear being carried out again."""
        return self.writer_thread.transact(act, boundary)

    @property
    def commits(self) -> int:
        """How many transactions there were."""
        return self._writer.commits

    @property
    def longest_ms(self) -> int:
        """How long the longest of them took."""
        return self._writer.longest_ms

    def _once(self, key: str, said: object, act: Act[Answer | None]) -> Answer | Refusal | None:
        """Set something, once for each key."""
        return self.transact(
            lambda transaction: run_once(transaction, key, said, lambda _: act(transaction), lambda _: None), _LIMIT
        )

    def _write_pass(self, act: Callable[[Transaction], Answer], /) -> Answer:
        return self.transact(act, Boundary.PASS_PAGE)

    def _after_commit(self, left: FollowUp) -> None:
        self.background.notify(left)
        if left.changed_graphs:
            for listener in self.listeners:
                listener(left.changed_graphs)


def _clear_pass_lock(store: Store) -> None:
    """Whoever was at a pass in this file is dead: we alone have the file."""
    with store.write() as repo:
        lock = repo.admission.read_lock()
        if lock is not None and lock.holder is not None:
            repo.admission.release_lock(lock.epoch)


def _answered(answer: object) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def _is_shown(repo: Repo, task: Key) -> bool:
    """Tell whether a task is there for people: not while it, or its graph, is being loaded."""
    found = repo.tasks.read([task])
    return bool(found) and not found[0].loading and repo.graphs.peek([found[0].graph])[0].loader is None


# The engine as a server calls it: nothing here keeps the event loop waiting.
#
# It has every method of an engine but those of its life: whoever made the engine starts and stops it.


class AsyncEngine:
    """An engine to be awaited."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def submit(
        self,
        document: object,
        *,
        graph_id: str | None = None,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: CheckPools = allow_any_pool,
    ) -> Submitted | Refusal:
        """Store a graph. A thread checks it: a large one takes seconds."""
        return await asyncio.to_thread(
            self._engine.submit, document, graph_id=graph_id, key=key, actor=actor, submitter=submitter, may=may
        )

    async def extend(
        self,
        graph_id: str,
        document: object,
        *,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: CheckPools = allow_any_pool,
    ) -> Submitted | Refusal:
        """Add tasks to a graph."""
        return await asyncio.to_thread(
            self._engine.extend, graph_id, document, key=key, actor=actor, submitter=submitter, may=may
        )

    async def cancel(self, command: Cancel) -> CommandOutcome:
        """End a task, a task with everything behind it, or a graph."""
        return await self._wish(Cancel, command)

    async def rerun(self, command: Rerun) -> CommandOutcome:
        """Try a task again, or all that failed in a graph."""
        return await self._wish(Rerun, command)

    async def approve(self, command: Approve) -> Done | Refusal:
        """Decide about an approval that waits for a person."""
        answer: Done | Refusal = await asyncio.wrap_future(self._engine.ask(Approve, command))
        return answer

    async def renew(
        self,
        graph_id: str,
        labels: tuple[str, ...],
        *,
        key: str = "",
        actor: str = "",
        submitter: str = "",
        may: CheckPools = allow_any_pool,
    ) -> Submitted | Refusal:
        """Store a graph that runs a settled one again. A thread reads all of that one."""
        return await asyncio.to_thread(
            self._engine.renew, graph_id, labels, key=key, actor=actor, submitter=submitter, may=may
        )

    async def set_pool(
        self, name: str, capacity: int | None = None, *, from_bots: bool = False, actor: str = ""
    ) -> Refusal | None:
        """Give a pool a capacity, fixed or that of its live bots, or none."""
        return await asyncio.to_thread(self._engine.set_pool, name, capacity, from_bots=from_bots, actor=actor)

    async def set_limit(self, name: str, total: int, *, actor: str = "", key: str = "") -> Refusal | None:
        """Say how much there is of something that tasks share."""
        return await asyncio.to_thread(self._engine.set_limit, name, total, actor=actor, key=key)

    async def set_stake_after(
        self, name: str, stake_after_ms: int | None, *, actor: str = "", key: str = ""
    ) -> Refusal | None:
        """Say how long mutexes hold a task before no younger one passes it at this key."""
        return await asyncio.to_thread(self._engine.set_stake_after, name, stake_after_ms, actor=actor, key=key)

    async def graph(self, graph_id: str) -> GraphOutline | Refusal:
        """Tell where a graph stands, and whether it is settled."""
        return await asyncio.to_thread(self._engine.graph, graph_id)

    async def story(self, task_id: str) -> TaskHistory | Refusal:
        """Tell everything that happened to a task."""
        return await asyncio.to_thread(self._engine.story, task_id)

    async def doctor(self) -> list[Finding]:
        """Recount every stored number. A thread does: a large store takes minutes."""
        return await asyncio.to_thread(self._engine.doctor)

    async def repair(self, findings: Iterable[Finding], actor: str = "") -> int | Refusal:
        """Mend what the doctor found and can be mended."""
        return await asyncio.to_thread(self._engine.repair, findings, actor)

    async def publish(self, command: Publish, key: str = "") -> Refusal | None:
        """Keep what a running task says of itself."""
        return await asyncio.to_thread(self._engine.publish, command, key)

    async def hello(self, command: Hello) -> Refusal | None:
        """Begin a bot's session, or take note of what changed about it; refuse a session that was replaced."""
        answer: Refusal | None = await asyncio.wrap_future(self._engine.ask(Hello, command))
        return answer

    async def poll(self, command: Poll) -> PollOutcome | Refusal:
        """Take a bot's results and renewals, and give it tasks."""
        answer: PollOutcome | Refusal = await asyncio.wrap_future(self._engine.ask(Poll, command))
        return answer

    async def goodbye(self, command: Goodbye) -> Refusal | None:
        """End a bot's session."""
        answer: Refusal | None = await asyncio.wrap_future(self._engine.ask(Goodbye, command))
        return answer

    async def schedule(self) -> PassOutcome:
        """Let in every pending task that may go, within the bounds of one call. A thread thinks about it."""
        return await asyncio.to_thread(self._engine.schedule)

    async def transact(self, act: Act[Answer], boundary: Boundary = Boundary.OTHER) -> Answer:
        """Carry out `act` in a transaction of its own. It has to bear being carried out again."""
        return await asyncio.wrap_future(self._engine.writer_thread.begin(act, boundary))

    async def _wish(self, kind: type, command: Cancel | Rerun) -> CommandOutcome:
        """A thread finds out how far a wish reaches if that is too far for a transaction."""
        answer: CommandOutcome | NeedsSearch = await asyncio.wrap_future(self._engine.ask(kind, command))
        return (
            await asyncio.to_thread(self._engine.wide_commands.go, command)
            if isinstance(answer, NeedsSearch)
            else answer
        )
