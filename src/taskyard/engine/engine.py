"""The engine: one database, the thread that writes to it, and the background jobs.

Any thread may call it. Every answer is durable. Methods take plain values and commands and return outcomes; a refusal
is an outcome, too. Exceptions are only for what is not the caller's fault (`engine/errors.py`).
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from taskyard.bus.webhooks import Network
from taskyard.core import ids
from taskyard.core.catalogue.launched import Wanted
from taskyard.core.fleet import LEASE_MAX_MS, LEASE_MIN_MS, LEASE_MS
from taskyard.core.ids import Key
from taskyard.core.retention import Kept
from taskyard.core.structs import struct_replace
from taskyard.engine import validate
from taskyard.engine.background import BackgroundJobs, BackgroundThread
from taskyard.engine.bulk_load import Pages
from taskyard.engine.catalogue import Catalogue
from taskyard.engine.clock import Clock, Pace, SystemClock
from taskyard.engine.errors import Unavailable, outages
from taskyard.engine.extend import GraphExtension
from taskyard.engine.failpoints import Boundary
from taskyard.engine.file_lock import FileLock
from taskyard.engine.hints import ChangeListeners, FollowedOutputs, HintThread
from taskyard.engine.keyring import Keyring, keyring_of
from taskyard.engine.launch import BY_HAND, LaunchAnswer, Launcher, Origin, Preview
from taskyard.engine.relay import RelayThread
from taskyard.engine.rerun_graph import GraphRerun
from taskyard.engine.retention import RetentionThread
from taskyard.engine.schedules import ScheduleRunner
from taskyard.engine.secrets import Secrets
from taskyard.engine.stats import StatsThread
from taskyard.engine.subgraphs import SubgraphStarter
from taskyard.engine.submit import GraphSubmission, KeyGenerator, gc_paused_for
from taskyard.engine.webhooks import Webhooks, WebhookThread
from taskyard.engine.wide_commands import CommandOutcome, WideCommands
from taskyard.engine.writer import Act, Command, Writer, WriterThread, answer_of
from taskyard.lifecycle import selection
from taskyard.lifecycle.admission import pools
from taskyard.lifecycle.admission.scheduler import Admission, PassOutcome
from taskyard.lifecycle.cancel import cancel_listed
from taskyard.lifecycle.children import ChildOf
from taskyard.lifecycle.commands import (
    Adopted,
    Approve,
    BulkOutcome,
    Cancel,
    Done,
    Goodbye,
    Hello,
    NeedsSearch,
    Poll,
    Publish,
    PublishFiles,
    Refusal,
    Rerun,
)
from taskyard.lifecycle.doctor import check, repair
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.idempotency import (
    MissingTrees,
    Sender,
    Submitter,
    allow_any_pool,
    allow_any_priority,
    carry_out_bulk_once,
    no_missing_trees,
    run_once,
)
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.report import publish, publish_files
from taskyard.lifecycle.retention import delete_graph, set_times, unset_times
from taskyard.lifecycle.submit import Submitted
from taskyard.lifecycle.transaction import FollowUp, ServerIdentity, Transaction
from taskyard.store.connection import (
    Repo,
    Store,
    open_hint_channel,
    open_server_lock,
    open_store,
    refuse_shared_sessions,
)
from taskyard.store.repo.admission import PoolRow
from taskyard.views import graphs as outlines
from taskyard.views import history as stories
from taskyard.views.graphs import GraphOutline
from taskyard.views.history import TaskHistory

#: How long a thread that computes may hold the interpreter. The writer needs it for every statement: at Python's
#: default of 5 ms, a poll that takes 2 ms would wait hundreds of milliseconds while a large document is validated.
SWITCH_S: Final = 0.000_5

_LIMIT: Final = Boundary.LIMIT
Answer = TypeVar("Answer")


class Engine:
    """One database: its writer thread, its background jobs and the methods that people, servers and bots call."""

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
        periodic_passes: bool = True,
        keyring: Keyring | None = None,
        webhook_networks: Sequence[Network] = (),
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
        ):  # if the database is unavailable, the first heartbeat asks it
            self.clock.follow(repo.servers.database_time)
        #: Told of changes that requests wait for. These are hints: those of other servers may be lost.
        self.listeners = ChangeListeners()
        self.followed = FollowedOutputs()
        #: Finds trees that new tasks take and that are not stored; a server that keeps files sets it.
        self.missing_trees: MissingTrees = no_missing_trees
        self._file_lock: FileLock | None = None
        self._writer = Writer(store, self.clock, self._after_commit, lease_ms, ServerIdentity(name, self.clock.now()))
        self.writer_thread = WriterThread(self._writer)
        keys, pages = KeyGenerator(self.clock), Pages(self.writer_thread, self.clock)
        self.secrets = Secrets(store, self.transact, self.clock, keyring or Keyring())
        self.catalogue = Catalogue(store, self.transact)
        self._submission = GraphSubmission(self.writer_thread, store, self.clock, keys, pages, scheduler_id)
        self._extension = GraphExtension(self.writer_thread, store, self.clock, keys, pages)
        self._rerun = GraphRerun(store, self.clock, keys, self._submission)
        self._launcher = Launcher(self.writer_thread, store, self.clock, keys, scheduler_id)
        self.wide_commands = WideCommands(self.writer_thread, store)
        word = self.clock.word()
        self._server_lock = open_server_lock(store.url, word)
        self._admission = Admission(
            self._write_pass,
            store.read,
            self.clock.now,
            word,
            server_lock=self._server_lock,
            secret_keys=self.secrets.keyring.ids,
        )
        self._subgraphs = SubgraphStarter(self._submission, self._rerun, self._launcher, store, self.transact)
        self._schedules = ScheduleRunner(self.launch, store, self.transact, self.clock)
        jobs = BackgroundJobs(
            self.transact,
            store,
            self.clock,
            self._admission,
            self._writer.parked_polls,
            self._subgraphs,
            self._schedules,
        )
        self.background = BackgroundThread(jobs, self.clock, events, ticks, periodic_passes)
        self.retention = RetentionThread(self.transact, store, self.clock, name)
        #: How fast events are numbered and published, so that tasks come first.
        self.pace = Pace()
        self.relay = RelayThread(self.transact, store, self.clock, self.pace, self._events_numbered)
        channel = open_hint_channel(store.url) if events else None
        self.hints = (
            None
            if channel is None
            else HintThread(channel, self.clock, word, self.writer_thread, self.listeners, self.followed)
        )
        self._admission.keeps_lock = lambda: self.hints is not None and self.hints.is_heard
        self.listeners.dirty.append(self._note_dirty)
        self._writer.on_commit = self._note_commit
        self.stats = StatsThread(self.transact, store, self.clock)
        self.webhooks = Webhooks(store, self.transact, self.clock, self.secrets, webhook_networks)
        self._webhook_thread = WebhookThread(self.webhooks)
        self._ticks = ticks

    @classmethod
    def open(  # noqa: PLR0913 - each is a setting of its own
        cls,
        url: str,
        clock: Clock | None = None,
        *,
        scheduler_id: str = "taskyard",
        lease_ms: int = LEASE_MS,
        name: str = "",
        secrets_key_file: Path | None = None,
        events: bool = True,
        periodic_passes: bool = True,
        webhook_networks: Sequence[Network] = (),
    ) -> Self:
        """Bring the database at `url` to the newest version and open it; a file may have one engine at a time.

        `name` tells servers of one database apart, and is the same whenever this one is started. The file with the keys
        of secrets is beside an SQLite database unless it is given; servers of PostgreSQL have none without it. Without
        `events` background work is found every few seconds only, not when a commit has caused it; without
        `periodic_passes` admission passes begin only when a commit or a timeout asks for one. Webhooks may have
        receivers in `webhook_networks`, which are not of the public Internet.
        """
        from taskyard.store.migrate import upgrade  # noqa: PLC0415 - who does not migrate does not pay for it

        with outages():
            refuse_shared_sessions(url)
        file_lock = FileLock(url)
        try:
            upgrade(url)
            store = open_store(url)
            if file_lock.is_exclusive:
                _clear_pass_lock(store)
            keyring = keyring_of(url, secrets_key_file)
            engine = cls(
                store,
                clock,
                events=events,
                periodic_passes=periodic_passes,
                scheduler_id=scheduler_id,
                lease_ms=lease_ms,
                name=name,
                keyring=keyring,
                webhook_networks=webhook_networks,
            )
        except BaseException:
            file_lock.leave()
            raise
        engine._file_lock = file_lock
        return engine

    # Start and stop.

    def start(self) -> None:
        """Start the writer thread and the background thread."""
        sys.setswitchinterval(SWITCH_S)
        self.writer_thread.start()
        self.background.start()
        if self._ticks:
            self.retention.start()
            self.relay.start()
            self.stats.start()
            self._webhook_thread.start()
        if self.hints is not None:
            self.hints.start()

    def stop(self) -> None:
        """Answer the accepted commands and stop. A writer that does not end in time keeps the database open."""
        self._webhook_thread.stop()
        self._subgraphs.stop()
        if self.hints is not None:
            self.hints.stop()
        self.retention.stop()
        self.relay.stop()
        self.stats.stop()
        self.background.stop()
        if self._server_lock is not None:
            self._server_lock.close()
        if self.writer_thread.stop():
            self.store.close()
            if self._file_lock is not None:
                self._file_lock.leave()

    def mark_serving(self) -> None:
        """Count the server as up from now on: bots could not renew or report before."""
        self._writer.server = struct_replace(self._writer.server, began_ms=self.clock.now())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Commands of people and of running tasks.

    def submit(
        self,
        document: object,
        *,
        graph_id: str | None = None,
        key: str = "",
        child_of: ChildOf | None = None,
        secret_bytes: bytes | None = None,
        **sender: Unpack[Sender],
    ) -> Submitted | Refusal:
        """Store a graph. Repeated with the same id, or with the same key and no id, it is an echo.

        A graph that is `child_of` a running task ends with it. Its tasks get `secret_bytes`.
        """
        refusal = validate.check_submission(graph_id, key, *_names(sender))
        if refusal is not None:
            return refusal
        of_request = None if secret_bytes is None else self.secrets.of_request(secret_bytes)
        if isinstance(of_request, Refusal):
            return of_request
        with outages(), gc_paused_for(document):
            return self._submission.submit(document, graph_id, key, self._submitter(sender), child_of, of_request)

    async def submit_small(
        self, document: object, *, key: str = "", child_of: ChildOf | None = None, **sender: Unpack[Sender]
    ) -> Submitted | Refusal | None:
        """Store the graph of a small document, validated on the event loop; None if `submit` has to do it."""
        refusal = validate.check_submission(None, key, *_names(sender))
        if refusal is not None:
            return refusal
        return await self._submission.submit_small(document, key, self._submitter(sender), child_of)

    def extend(
        self,
        graph_id: str,
        document: object,
        *,
        key: str = "",
        **sender: Unpack[Sender],
    ) -> Submitted | Refusal:
        """Add tasks to a graph; those that it has already, with the same definition, are echoes."""
        actor, submitter, user = _names(sender)
        refusal = validate.check_request(graph_id=graph_id, key=key, actor=actor, submitter=submitter, user=user)
        if refusal is not None:
            return refusal
        with outages(), gc_paused_for(document):
            return self._extension.extend(graph_id, document, self._submitter(sender), key)

    def _submitter(self, sender: Sender) -> Submitter:
        actor, submitter, user = _names(sender)
        return Submitter(
            actor,
            submitter or actor,
            sender.get("may", allow_any_pool),
            user or actor,
            sender.get("may_urge", allow_any_priority),
            sender.get("may_use", allow_any_pool),
            self.missing_trees,
        )

    def cancel(self, command: Cancel) -> CommandOutcome:
        """Cancel a task, a task with everything behind it, or a graph."""
        answer: CommandOutcome | NeedsSearch = answer_of(self.ask(Cancel, command))
        return self.wide_commands.go(command) if isinstance(answer, NeedsSearch) else answer

    def cancel_tasks(
        self, tasks: Collection[int], *, after: int = 0, request: object = None, actor: str = "", key: str = ""
    ) -> BulkOutcome | Refusal:
        """Cancel some tasks of any graphs, at most `TASKS_PER_CANCEL_MAX`, each as if it alone were canceled.

        They were found for a `request`; the search for more begins after an id, which is the subject of the answer.
        A repeat of the request with the same key gets the first answer.
        """
        refusal = validate.check_request(actor=actor, key=key)
        return refusal or self.transact(
            lambda transaction: carry_out_bulk_once(
                transaction,
                key,
                ("cancel_tasks", request),
                lambda transaction: BulkOutcome(after, cancel_listed(transaction, tasks, actor)),
            )
        )

    def rerun(self, command: Rerun) -> CommandOutcome:
        """Rerun a failed task, or everything in a graph that failed."""
        answer: CommandOutcome | NeedsSearch = answer_of(self.ask(Rerun, command))
        return self.wide_commands.go(command) if isinstance(answer, NeedsSearch) else answer

    def approve(self, command: Approve) -> Done | Refusal:
        """Decide an approval."""
        answer: Done | Refusal = answer_of(self.ask(Approve, command))
        return answer

    def renew(
        self,
        graph_id: str,
        labels: tuple[str, ...],
        *,
        key: str = "",
        **sender: Unpack[Sender],
    ) -> Submitted | Refusal:
        """Store a new graph that reruns a settled one from some tasks on and reuses the results before them."""
        actor, submitter, user = _names(sender)
        refusal = validate.check_request(
            graph_id=graph_id, labels=labels, key=key, actor=actor, submitter=submitter, user=user
        )
        return refusal or self._rerun.renew(ids.key_of(graph_id), labels, key, self._submitter(sender))

    def launch(
        self, wanted: Wanted, *, key: str = "", origin: Origin = BY_HAND, **sender: Unpack[Sender]
    ) -> LaunchAnswer:
        """Launch a template, the update of a resource or an ad-hoc command; with the updates that it needs.

        Repeated with the same key, it is an echo. The sender needs rights in the pool of what is launched, and in those
        of what that launches in turn.
        """
        actor, submitter, user = _names(sender)
        refusal = validate.check_request(key=key, actor=actor, submitter=submitter, user=user)
        return refusal or self._launcher.launch(wanted, key, self._submitter(sender), origin)

    def preview_launch(self, wanted: Wanted, **sender: Unpack[Sender]) -> Preview | Refusal:
        """Say what a launch would do; nothing is stored."""
        return self._launcher.preview(wanted, self._submitter(sender))

    def relaunch(
        self, graph_id: str, *, from_failed: bool = False, key: str = "", **sender: Unpack[Sender]
    ) -> LaunchAnswer:
        """Launch again what a graph was launched from, planned anew; a workflow can take over what succeeded."""
        actor, submitter, user = _names(sender)
        refusal = validate.check_request(graph_id=graph_id, key=key, actor=actor, submitter=submitter, user=user)
        return refusal or self._launcher.relaunch(ids.key_of(graph_id), key, self._submitter(sender), from_failed)

    def set_pool(
        self, name: str, capacity: int | None = None, *, from_bots: bool = False, actor: str = ""
    ) -> Refusal | None:
        """Set the capacity of a pool: fixed, that of its live bots, or none; the next admission pass applies it."""
        refusal = validate.check_request(name=name, capacity=capacity, from_bots=from_bots, actor=actor)
        if refusal is not None:
            return refusal
        pool = PoolRow(name, capacity, from_bots)
        left = self.transact(lambda transaction: pools.set_pool(transaction, pool, actor), _LIMIT)
        return left if isinstance(left, Refusal) else None

    def set_limit(self, name: str, total: int, *, actor: str = "", key: str = "") -> Refusal | None:
        """Set the total of a named limit that tasks share, in whatever pool they run."""
        refusal = validate.check_request(name=name, total=total, actor=actor, key=key)
        said = ("set_limit", name, total)
        return refusal or self._once(key, said, lambda transaction: pools.set_limit(transaction, name, total, actor))

    def set_stake_after(
        self, name: str, stake_after_ms: int | None, *, actor: str = "", key: str = ""
    ) -> Refusal | None:
        """Set how long a task may wait for a mutex key before no younger task may pass it; None: no limit."""
        refusal = validate.check_request(name=name, stake_after_ms=stake_after_ms, actor=actor, key=key)
        said = ("set_stake_after", name, stake_after_ms)
        return refusal or self._once(
            key, said, lambda transaction: pools.set_stake_after(transaction, name, stake_after_ms, actor)
        )

    def delete_graph(self, graph_id: str, *, actor: str = "", key: str = "") -> Refusal | None:
        """Delete a settled graph with all that belongs to it: it is hidden at once, its rows go in the background."""
        refusal = validate.check_request(graph_id=graph_id, actor=actor, key=key)
        if refusal is not None:
            return refusal
        id = ids.key_of(graph_id)
        answer = self._once(key, ("delete_graph", graph_id), lambda transaction: delete_graph(transaction, id, actor))
        self.retention.wake()
        return answer

    def set_retention(
        self,
        pool: str,
        times: Mapping[Kept, int | None],
        unset: Collection[Kept] = (),
        *,
        actor: str = "",
        key: str = "",
    ) -> Refusal | None:
        """Set how long things of a pool, or of all pools (`*`), are kept; None: for ever. Unset kinds have defaults."""

        def act(transaction: Transaction) -> None:
            if times:
                set_times(transaction, pool, tuple(times.items()), actor)
            if unset:
                unset_times(transaction, pool, tuple(unset), actor)

        refusal = validate.check_request(name=pool, actor=actor, key=key)
        said = ("set_retention", pool, sorted(times.items()), sorted(unset))
        return refusal or self._once(key, said, act)

    def graph(self, graph_id: str) -> GraphOutline | Refusal:
        """Return the state of a graph, and whether it is settled."""
        refusal = validate.check_request(graph_id=graph_id)
        if refusal is not None:
            return refusal
        id = ids.key_of(graph_id)
        with outages(), self.store.read() as repo:
            return outlines.outline(repo, id) or selection.not_found("graph", id)

    def story(self, task_id: str) -> TaskHistory | Refusal:
        """Return everything that happened to a task."""
        refusal = validate.check_request(task_id=task_id)
        if refusal is not None:
            return refusal
        id = ids.key_of(task_id)
        with outages(), self.store.read() as repo:
            return stories.read_history(repo, id) if _is_shown(repo, id) else selection.not_found("task", id)

    def doctor(self) -> list[Finding]:
        """Check every stored value against the others, in one snapshot; return what does not follow from the rest."""
        now = self.clock.now()
        with outages(), self.store.read() as repo:
            return check.doctor(repo, now)

    def repair(self, findings: Iterable[Finding], actor: str = "") -> int | Refusal:
        """Repair the findings that can be repaired; return how many they were."""
        refusal = validate.check_request(actor=actor)
        return refusal or repair.repair(lambda act: self.transact(act, Boundary.REPAIR), findings, actor)

    def publish(self, command: Publish, key: str = "") -> Refusal | None:
        """Store the result, the progress or the checkpoint of a running task."""
        refusal = validate.check(Publish, command) or validate.check_request(key=key)
        return refusal or self.transact(
            lambda transaction: run_once(
                transaction, key, command, lambda _: publish(transaction, command), lambda _: None
            )
        )

    def publish_files(self, command: PublishFiles, key: str = "") -> Refusal | None:
        """Store which files a running task leaves."""
        refusal = validate.check_request(key=key)
        return refusal or self.transact(
            lambda transaction: run_once(
                transaction, key, command, lambda _: publish_files(transaction, command), lambda _: None
            )
        )

    # Messages of bots.

    def hello(self, command: Hello) -> Refusal | tuple[Adopted, ...] | None:
        """Begin a bot's session, or update what changed about the bot; refuse a session that was replaced."""
        answer: Refusal | tuple[Adopted, ...] | None = answer_of(self.ask(Hello, command))
        return answer

    def poll(self, command: Poll) -> PollOutcome | Refusal:
        """Store a bot's reports, renewals and output, and lease tasks to it."""
        answer: PollOutcome | Refusal = answer_of(self.ask(Poll, command))
        return answer

    def goodbye(self, command: Goodbye) -> Refusal | None:
        """End a bot's session."""
        answer: Refusal | None = answer_of(self.ask(Goodbye, command))
        return answer

    def leave(self, poll: "Future[Any]") -> None:
        """Answer a parked poll now, with nothing."""
        self.writer_thread.leave(poll)

    def allow_parking(self, allowed: bool) -> None:
        """Let polls wait for work, or answer all that do and let none wait from now on."""
        self.writer_thread.allow_parking(allowed)

    def ask(self, kind: type, command: Command, *, decoded: bool = False) -> "Future[Any]":
        """Queue a command, to run in one transaction with others; an invalid one is answered at once.

        `decoded`: the command is a poll that was decoded within the bounds of its fields.
        """
        if decoded and isinstance(command, Poll):
            refusal = validate.check_decoded(command)
        else:
            refusal = validate.check(kind, command)
        if refusal is not None:
            return _answered(refusal)
        if isinstance(command, Poll) and command.want and not command.poll:
            # If the reply to the commit is lost, the poll runs again and must give the same leases.
            command = struct_replace(command, poll=self.clock.word())
        return self.writer_thread.put(command)

    # Work that background jobs do, too.

    def schedule(self, *, wait: bool = True) -> PassOutcome:
        """Admit every pending task that may run, within the bounds of one call; without `wait` not beside another."""
        return self._admission.schedule(wait)

    def transact(self, act: Act[Answer], boundary: Boundary = Boundary.OTHER) -> Answer:
        """Run `act` in a transaction of its own. It must be safe to run twice."""
        return self.writer_thread.transact(act, boundary)

    @property
    def commits(self) -> int:
        """How many transactions have been committed."""
        return self._writer.commits

    @property
    def longest_ms(self) -> int:
        """How long the longest transaction took."""
        return self._writer.longest_ms

    def _once(self, key: str, said: object, act: Act[Answer | None]) -> Answer | Refusal | None:
        """Run `act` once for each idempotency key."""
        return self.transact(
            lambda transaction: run_once(transaction, key, said, lambda _: act(transaction), lambda _: None), _LIMIT
        )

    def _write_pass(self, act: Callable[[Transaction], Answer], /) -> Answer:
        return self.transact(act, Boundary.PASS_PAGE)

    def _after_commit(self, left: FollowUp) -> None:
        self.background.notify(left)
        self.stats.note(left)
        if left.changed_graphs:
            for listener in self.listeners.graphs:
                listener(left.changed_graphs)

    def _note_commit(self, transaction: Transaction) -> None:
        """Tell those who wait for what a commit changed, here and at other servers."""
        if self.followed:
            here, _ = self.followed.among(transaction.printed_tasks())
            for listener in self.listeners.outputs if here else ():
                listener(here)
        if transaction.changed_events:
            self.relay.note_commit()
        if self.hints is not None:
            self.hints.note(transaction)

    def _note_dirty(self) -> None:
        """Another server has something for an admission pass: run one, if this server keeps the lock."""
        if self._admission.is_leader:
            self.background.notify(FollowUp(admission_dirty=True))

    def _events_numbered(self) -> None:
        for look in self.listeners.events:
            look()
        if self.hints is not None:
            self.hints.note_events()


def _clear_pass_lock(store: Store) -> None:
    """Clear the admission lock in a file that only this process uses: its holder has ended."""
    with store.write() as repo:
        lock = repo.admission.read_lock()
        if lock is not None and lock.holder is not None:
            repo.admission.release_lock(lock.epoch)


def _names(sender: Sender) -> tuple[str, str, str]:
    """Return the actor, the submitter and the user."""
    return sender.get("actor", ""), sender.get("submitter", ""), sender.get("user", "")


def _answered(answer: object) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def _is_shown(repo: Repo, task: Key) -> bool:
    """Return whether a task is visible: not while it, or its graph, is still loading."""
    found = repo.tasks.read([task])
    return bool(found) and not found[0].loading and repo.graphs.peek([found[0].graph])[0].loader is None


class AsyncEngine:
    """The engine for an event loop: each method of `Engine` as a coroutine, except those that start and stop it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def submit(
        self,
        document: object,
        *,
        graph_id: str | None = None,
        key: str = "",
        child_of: ChildOf | None = None,
        secret_bytes: bytes | None = None,
        **sender: Unpack[Sender],
    ) -> Submitted | Refusal:
        """Store a graph. A thread validates it: a large one takes seconds."""
        return await asyncio.to_thread(
            self._engine.submit,
            document,
            graph_id=graph_id,
            key=key,
            child_of=child_of,
            secret_bytes=secret_bytes,
            **sender,
        )

    async def submit_small(
        self, document: object, *, key: str = "", child_of: ChildOf | None = None, **sender: Unpack[Sender]
    ) -> Submitted | Refusal | None:
        """Store the graph of a small document, validated here; None if `submit` has to do it."""
        return await self._engine.submit_small(document, key=key, child_of=child_of, **sender)

    async def extend(
        self,
        graph_id: str,
        document: object,
        *,
        key: str = "",
        **sender: Unpack[Sender],
    ) -> Submitted | Refusal:
        """Add tasks to a graph."""
        return await asyncio.to_thread(
            self._engine.extend,
            graph_id,
            document,
            key=key,
            **sender,
        )

    async def cancel(self, command: Cancel) -> CommandOutcome:
        """Cancel a task, a task with everything behind it, or a graph."""
        return await self._run_wide(Cancel, command)

    async def cancel_tasks(
        self, tasks: Collection[int], *, after: int = 0, request: object = None, actor: str = "", key: str = ""
    ) -> BulkOutcome | Refusal:
        """Cancel some tasks of any graphs."""
        return await asyncio.to_thread(
            self._engine.cancel_tasks, tasks, after=after, request=request, actor=actor, key=key
        )

    async def rerun(self, command: Rerun) -> CommandOutcome:
        """Rerun a failed task, or everything in a graph that failed."""
        return await self._run_wide(Rerun, command)

    async def approve(self, command: Approve) -> Done | Refusal:
        """Decide an approval."""
        answer: Done | Refusal = await asyncio.wrap_future(self._engine.ask(Approve, command))
        return answer

    async def renew(
        self,
        graph_id: str,
        labels: tuple[str, ...],
        *,
        key: str = "",
        **sender: Unpack[Sender],
    ) -> Submitted | Refusal:
        """Store a new graph that reruns a settled one, which a thread reads."""
        return await asyncio.to_thread(
            self._engine.renew,
            graph_id,
            labels,
            key=key,
            **sender,
        )

    async def launch(
        self, wanted: Wanted, *, key: str = "", origin: Origin = BY_HAND, **sender: Unpack[Sender]
    ) -> LaunchAnswer:
        """Launch something. A thread reads the catalogue and makes its graphs."""
        return await asyncio.to_thread(self._engine.launch, wanted, key=key, origin=origin, **sender)

    async def preview_launch(self, wanted: Wanted, **sender: Unpack[Sender]) -> Preview | Refusal:
        """Say what a launch would do, on a thread."""
        return await asyncio.to_thread(self._engine.preview_launch, wanted, **sender)

    async def relaunch(
        self, graph_id: str, *, from_failed: bool = False, key: str = "", **sender: Unpack[Sender]
    ) -> LaunchAnswer:
        """Launch again what a graph was launched from, on a thread."""
        return await asyncio.to_thread(self._engine.relaunch, graph_id, from_failed=from_failed, key=key, **sender)

    async def set_pool(
        self, name: str, capacity: int | None = None, *, from_bots: bool = False, actor: str = ""
    ) -> Refusal | None:
        """Set the capacity of a pool: fixed, that of its live bots, or none."""
        return await asyncio.to_thread(self._engine.set_pool, name, capacity, from_bots=from_bots, actor=actor)

    async def set_limit(self, name: str, total: int, *, actor: str = "", key: str = "") -> Refusal | None:
        """Set the total of a named limit that tasks share."""
        return await asyncio.to_thread(self._engine.set_limit, name, total, actor=actor, key=key)

    async def set_stake_after(
        self, name: str, stake_after_ms: int | None, *, actor: str = "", key: str = ""
    ) -> Refusal | None:
        """Set how long a task may wait for a mutex key before no younger task may pass it."""
        return await asyncio.to_thread(self._engine.set_stake_after, name, stake_after_ms, actor=actor, key=key)

    async def delete_graph(self, graph_id: str, *, actor: str = "", key: str = "") -> Refusal | None:
        """Delete a settled graph with all that belongs to it."""
        return await asyncio.to_thread(self._engine.delete_graph, graph_id, actor=actor, key=key)

    async def set_retention(
        self,
        pool: str,
        times: Mapping[Kept, int | None],
        unset: Collection[Kept] = (),
        *,
        actor: str = "",
        key: str = "",
    ) -> Refusal | None:
        """Set how long things of a pool, or of all pools (`*`), are kept."""
        return await asyncio.to_thread(self._engine.set_retention, pool, times, unset, actor=actor, key=key)

    async def graph(self, graph_id: str) -> GraphOutline | Refusal:
        """Return the state of a graph, and whether it is settled."""
        return await asyncio.to_thread(self._engine.graph, graph_id)

    async def story(self, task_id: str) -> TaskHistory | Refusal:
        """Return everything that happened to a task."""
        return await asyncio.to_thread(self._engine.story, task_id)

    async def doctor(self) -> list[Finding]:
        """Check every stored value on a thread: a large database takes minutes."""
        return await asyncio.to_thread(self._engine.doctor)

    async def repair(self, findings: Iterable[Finding], actor: str = "") -> int | Refusal:
        """Repair the findings that can be repaired."""
        return await asyncio.to_thread(self._engine.repair, findings, actor)

    async def publish_files(self, command: PublishFiles, key: str = "") -> Refusal | None:
        """Store which files a running task leaves."""
        return await asyncio.to_thread(self._engine.publish_files, command, key)

    async def publish(self, command: Publish, key: str = "") -> Refusal | None:
        """Store the result, the progress or the checkpoint of a running task."""
        return await asyncio.to_thread(self._engine.publish, command, key)

    async def hello(self, command: Hello) -> Refusal | tuple[Adopted, ...] | None:
        """Begin a bot's session, or update what changed about the bot; refuse a session that was replaced."""
        answer: Refusal | tuple[Adopted, ...] | None = await asyncio.wrap_future(self._engine.ask(Hello, command))
        return answer

    async def poll(self, command: Poll) -> PollOutcome | Refusal:
        """Store a bot's reports, renewals and output, and lease tasks to it."""
        answer: PollOutcome | Refusal = await asyncio.wrap_future(self._engine.ask(Poll, command))
        return answer

    async def goodbye(self, command: Goodbye) -> Refusal | None:
        """End a bot's session."""
        answer: Refusal | None = await asyncio.wrap_future(self._engine.ask(Goodbye, command))
        return answer

    async def schedule(self, *, wait: bool = True) -> PassOutcome:
        """Admit every pending task that may run, within the bounds of one call, on a thread."""
        return await asyncio.to_thread(self._engine.schedule, wait=wait)

    async def transact(self, act: Act[Answer], boundary: Boundary = Boundary.OTHER) -> Answer:
        """Run `act` in a transaction of its own. It must be safe to run twice."""
        return await asyncio.wrap_future(self._engine.writer_thread.begin(act, boundary))

    async def _run_wide(self, kind: type, command: Cancel | Rerun) -> CommandOutcome:
        """Run a cancel or a rerun; if it reaches too far for one transaction, search the store on a thread first."""
        answer: CommandOutcome | NeedsSearch = await asyncio.wrap_future(self._engine.ask(kind, command))
        return (
            await asyncio.to_thread(self._engine.wide_commands.go, command)
            if isinstance(answer, NeedsSearch)
            else answer
        )
