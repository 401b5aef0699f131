"""One database transaction of the life cycle: it applies transitions and writes what follows from them.

`apply` takes tasks along arrows of the state machine, notes what each arrow changes, and goes on with what that
causes in turn: dependents that are released or blocked, tasks that are admitted at once. `finish` then writes the new
counts and states of the graphs, and their events. The graph rows are locked at that point, so events are numbered in
order.

The state machine says where a signal leads and `core` says what follows; this module makes no such decision itself.
Only the methods of `Transaction` change its state.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from taskyard.core import attempt_policy, fleet
from taskyard.core.attempt_policy import Life, due_at
from taskyard.core.events import EXTEND
from taskyard.core.explain_text import lacking_says
from taskyard.core.fleet import BotFacts
from taskyard.core.graph.gate import LISTENING, gate, signals
from taskyard.core.graph.payload import GRAPH_KINDS
from taskyard.core.graph.state import Handlers, Tally, over, settled, unhandled, verdict
from taskyard.core.matching import Dimensions
from taskyard.core.reuse import ReusePolicy
from taskyard.core.states import ENDED, HOLDING, LEASED, QUEUED, UNSUCCESSFUL, GraphState, Millis, Signal, State
from taskyard.core.structs import value
from taskyard.lifecycle import failure_handlers, links, propagate, release, reuse
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import SERVER_QUEUE, SETTLED
from taskyard.lifecycle.transition import (
    COMPILED_ARROWS,
    Claimant,
    CompiledArrow,
    StateChange,
    Transition,
    transition_by,
)
from taskyard.store.connection import Repo
from taskyard.store.queries import Row, TransactionConflict
from taskyard.store.repo.events import encode_fact, encode_transition
from taskyard.store.repo.tasks import MoveKind
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord

#: How many edges one transaction propagates along; the rest is left as continuations. It keeps a transaction under
#: 100 ms.
PROPAGATED_MAX: Final = 1_000
#: How many tasks of a queue parked polls are offered at once that another server left there.
OFFERED_MAX: Final = 256
#: In a queue.
_QUEUED: Final = HOLDING - LEASED
#: Under way at a bot that is to end them.
_TO_STOP: Final = LEASED - {State.RUNNING}
#: The kinds whose attempts are graphs.
_GRAPHS: Final = frozenset(kind.text for kind in GRAPH_KINDS)
#: Later than any moment.
_NEVER: Final = Millis(2**63)
#: The columns that two successive changes of one task can have changed; for any other pair these are all of them.
_COMBINED: Final[Mapping[tuple[MoveKind, MoveKind], MoveKind]] = {
    (MoveKind.READY, MoveKind.READY): MoveKind.READY,
    (MoveKind.READY, MoveKind.STARTED): MoveKind.SENT,
}
#: The shapes that include the edge counts.
_WITH_EDGES: Final = frozenset({MoveKind.READY, MoveKind.SENT})
_ANY: Final = MoveKind.ANY


#: The states whose entries are counted for each pool.
_COUNTED: Final = ENDED | {State.RUNNING}


@value
class ServerIdentity:
    """A server: its name, which stays the same after a restart, and when it was started."""

    name: str = ""  # empty if the database has only one server
    began_ms: Millis = Millis(0)


#: The only server of a database.
SINGLE_SERVER: Final = ServerIdentity()


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What remains to be done after a transaction."""

    admission_dirty: bool = False  # an admission pass has something to look at
    continuations: bool = False  # continuations are open
    server_tasks: bool = False  # a task that the server runs itself is queued,
    subgraphs: bool = False  # or one with a graph inside
    children: bool = False  # a graph was stored that ends with a task
    attempts_ended: bool = False
    changed_graphs: tuple[int, ...] = ()  # graphs that changed their state, settled, or are active again
    due_ms: Millis | None = None  # when the first of the written tasks has a timeout
    # For the counts of pools: the queue and the new state of tasks that started or ended, and rows of new tasks.
    moved: Collection[tuple[int, State]] = ()
    inserted: Sequence[Sequence[Row]] = ()


@dataclass(slots=True)
class _GraphDelta:
    """What the transitions of one transaction add to the counts of one graph."""

    active: int = 0
    behind: int = 0
    unhandled: int = 0
    events: list[tuple[int, list[str]]] = field(default_factory=list)  # facts by subject: rows of events, in order
    started: bool = False
    _latest: dict[int, list[str]] = field(default_factory=dict)  # the last row of each subject

    def record(self, subject: int, fact: str, is_consequence: bool = False) -> None:
        """Add a fact to the row of its subject.

        A consequence of what happened to another task comes after that: it begins a new row.
        """
        row = None if is_consequence else self._latest.get(subject)
        if row is None:
            row = self._latest[subject] = []
            self.events.append((subject, row))
        row.append(fact)


class Transaction:
    """One transaction: its transitions and what follows from them."""

    def __init__(
        self,
        repo: Repo,
        now: Millis,
        registry: Registry,
        lease_ms: int = fleet.LEASE_MS,
        server: ServerIdentity = SINGLE_SERVER,
    ) -> None:
        self.repo = repo
        self.now = now
        self.registry = registry
        self.lease_ms = lease_ms  # how long a lease lasts that is given or renewed now
        self.server = server  # which server runs this transaction
        self.edge_budget = PROPAGATED_MAX  # along how many more edges this transaction may propagate
        self.reuse_budget = PROPAGATED_MAX  # how many more results it may reuse; one takes as long as an edge
        self.inserted: list[Sequence[Row]] = []  # rows of new tasks
        self._writes = PendingWrites()
        self._written: list[TaskRecord] = []  # tasks in the order in which they were written
        self._writes_deferred = False
        # What the transitions so far still ask for.
        self._to_propagate: list[StateChange] = []
        self._handlers_moved: list[tuple[TaskRecord, State]] = []
        self._to_recheck: dict[int, TaskRecord] = {}
        self._to_admit: list[tuple[TaskRecord, Signal]] = []
        self._left_keys: list[tuple[TaskRecord, State, Signal]] = []  # idempotent tasks that have ended or gone on
        self._ended_updates: list[TaskRecord] = []  # of resources
        # What is checked or written when the transaction finishes.
        self._deltas: dict[int, _GraphDelta] = {}
        self._dirty: list[int | None] = []
        self._rerun_graphs: set[int] = set()
        self._deferred_runs: set[int] = set()  # tasks that ran to their end, which their prerequisites learn later
        self._delivered: set[int] = set()  # graphs inside tasks that have settled, and whose tasks know it
        self._quiet: set[int] = set()  # graphs that are being canceled: nothing is propagated in them
        # What the engine does after the commit.
        self._entered_queues: list[int] = []
        self._stopping: list[TaskRecord] = []
        self._changed_bots: set[str] = set()
        self._changed_graphs: list[int] = []
        self._has_continuations = False
        self._has_children = False
        self._attempts_ended = False
        self._serves_all_queues = False
        self._printed: set[int] = set()
        self._repeating_bots: set[str] = set()
        # Reads, as of when this transaction first asked.
        self._graphs: dict[int, GraphRecord] = {}
        self._bots: tuple[BotFacts, ...] | None = None
        self._capacity: dict[Dimensions, bool] = {}
        self._missing: dict[tuple[Dimensions, ...], str] = {}
        self._limited_pools: frozenset[str] | None = None
        self._reuse_policies: dict[str, ReusePolicy] | None = None

    # Reading. What was read once is not read again: it is as this transaction has changed it.

    def lock_tasks(self, ids: Collection[int]) -> dict[int, TaskRecord]:
        """Read and lock tasks: no other transaction moves them before this one ends."""
        return self.repo.tasks.get(ids)

    def known_task(self, id: int) -> TaskRecord | None:
        """Return a task if this transaction has read it; it may be newer than the row in the database."""
        return self.repo.tasks.cached(id)

    def graph(self, id: int) -> GraphRecord:
        """Return a graph as it was when this transaction first asked."""
        if id not in self._graphs:
            self._graphs[id] = self.repo.graphs.get(id)
        return self._graphs[id]

    def is_canceled(self, graph: int) -> bool:
        """Whether a graph is canceled."""
        return (self._graphs.get(graph) or self.graph(graph)).canceled_ms is not None

    def bots(self) -> tuple[BotFacts, ...]:
        """Return every bot."""
        if self._bots is None:
            self._bots = tuple(bot.facts for bot in self.repo.bots.read_all())
        return self._bots

    def has_capacity(self, dimensions: Dimensions) -> bool:
        """Whether a bot was seen that could serve these dimensions."""
        known = self._capacity.get(dimensions)
        if known is None:
            known = self._capacity[dimensions] = fleet.capacity_seen(dimensions, self.bots())
        return known

    def missing_dimensions(self, wanted: tuple[Dimensions, ...]) -> str:
        """Return what no live bot has, for each of the dimensions that a task can run with."""
        known = self._missing.get(wanted)
        if known is None:
            live = [bot for bot in self.bots() if fleet.alive(bot)]
            known = self._missing[wanted] = lacking_says(wanted, live)
        return known

    def has_pool_limit(self, queue: int) -> bool:
        """Whether the pool of a queue has a capacity."""
        if self._limited_pools is None:
            pools = self.repo.admission.locked_pools()
            self._limited_pools = frozenset(pool.name for pool in pools if pool.from_bots or pool.capacity is not None)
        return bool(self._limited_pools) and self.registry.queue(self.repo, queue).pool in self._limited_pools

    def reuse_policies(self) -> dict[str, ReusePolicy]:
        """Return what pools allow that are configured for the reuse of results."""
        if self._reuse_policies is None:
            self._reuse_policies = {row.pool: reuse.reuse_policy(row) for row in self.repo.reuse.policies()}
        return self._reuse_policies

    def unwritten_in(self, queues: Collection[int]) -> list[TaskRecord]:
        """Return the tasks that this transaction put into queues and has not written yet."""
        return [task for task in self._writes.newly_queued() if task.queue in queues]

    def unwritten_leases(self, bots: Collection[str]) -> list[TaskRecord]:
        """Return the tasks that this transaction has leased to bots and has not written yet."""
        return [task for task in self._writes.newly_leased() if task.bot in bots]

    # Transitions.

    def apply(self, transitions: Sequence[Transition] = ()) -> None:
        """Apply transitions, at most one for each task, and then all that follows from them or was requested before."""
        wave = transitions or self._next()
        while wave:
            self._carry_out(wave)
            wave = self._next()
        if not self._writes_deferred:
            self.write_now()

    def write_now(self) -> None:
        """Write what has changed so far."""
        self._written += self._writes.write(self.repo, self.now)

    def write_ends(self) -> None:
        """Write what has changed so far if tasks have ended by it, so that queries see their last attempts."""
        if self._writes.has_ends():
            self.write_now()

    def apply_admissions(self, transitions: Sequence[Transition]) -> None:
        """Apply what an admission pass has decided; its own tasks are not dirty by that, or it would never end."""
        before = len(self._dirty)
        self.apply(transitions)
        own = {transition.task.id for transition in transitions}
        self._dirty[before:] = [id for id in self._dirty[before:] if id not in own]

    @contextmanager
    def deferred_writes(self) -> Iterator[None]:
        """Write nothing meanwhile, so that several transitions of a task become one write.

        Queries by state do not see the tasks that have not been written.
        """
        self._writes_deferred = True
        yield
        self._writes_deferred = False

    def recheck_gates(self, tasks: Iterable[TaskRecord]) -> None:
        """Have the next `apply` look whether tasks can start now, or never can."""
        for task in tasks:
            if not task.loading:
                self._to_recheck[task.id] = task

    def request_admission(self, task: TaskRecord, signal: Signal = Signal.ADMIT) -> None:
        """Have the next `apply` admit a pending task, unless an admission pass has to do it."""
        self._to_admit.append((task, signal))

    # Changes beside transitions.

    def mark_changed(self, task: TaskRecord) -> None:
        """Have the next `apply` or `finish` write a task that changed without a transition."""
        self._writes.change(task)

    def mark_edges_changed(self, tasks: Mapping[int, TaskRecord]) -> None:
        """Have the next `apply` or `finish` write the edge counts of tasks."""
        self._writes.change_edges(tasks)

    def mark_dirty(self, task: int | None) -> None:
        """Have the next admission pass look at a task, or at all bots and pools if it is None."""
        self._dirty.append(task)

    def mark_bot_changed(self, bot: str) -> None:
        """Have the parked poll of a bot answered: the bot is no longer what it was when it asked."""
        self._changed_bots.add(bot)

    def set_handlers(self, task: TaskRecord, handlers: Handlers) -> None:
        """Set how many tasks handled the failure of a task, or still may."""
        before = unhandled(task.state, task.handlers)
        task.handlers = handlers
        self.adjust_counts(task.graph, unhandled=unhandled(task.state, handlers) - before)
        self.mark_changed(task)

    def adjust_counts(self, graph: int, active: int = 0, behind: int = 0, unhandled: int = 0) -> None:
        """Add to the counts of a graph."""
        delta = self._delta(graph)
        delta.active += active
        delta.behind += behind
        delta.unhandled += unhandled

    def record_created(self, graph: int) -> None:
        """Record the event that a graph was created."""
        self._delta(graph).record(graph, _graph_event(None, GraphState.RUNNING))

    def record_extended(self, graph: GraphRecord) -> None:
        """Record the event that a graph, which this transaction has locked, got more tasks."""
        self._delta(graph.id).record(graph.id, _graph_event(graph.state, graph.state, EXTEND))

    def cancel_graph(self, graph: int) -> None:
        """Mark a graph as canceled: from here on nothing in it starts."""
        self.repo.graphs.mark_canceled(graph, self.now)
        self._graphs.pop(graph, None)
        self._quiet.add(graph)
        self.adjust_counts(graph)

    def stop_propagation(self, graph: int) -> None:
        """Propagate no transition in a graph that is canceled: nothing in it starts any more."""
        self._quiet.add(graph)

    def note_reruns(self, graphs: Iterable[int]) -> None:
        """Have `finish` check that no handler in these graphs, where tasks are rerun, has ended meanwhile."""
        self._rerun_graphs |= set(graphs)

    def note_delivered(self, graph: int) -> None:
        """Note that the task around a graph knows that the graph has settled."""
        self._delivered.add(graph)

    def note_child(self) -> None:
        """Note that a graph was stored that ends with a task."""
        self._has_children = True

    def audit(self, actor: str, action: str, subject: int, note: str = "") -> None:
        """Record what a person asked for."""
        self.repo.events.add_audits([(self.now, actor, action, subject, note)])

    def audit_each(self, actor: str, action: str, subject: int, notes: Iterable[str]) -> None:
        """Record several things of one kind that a person asked for."""
        self.repo.events.add_audits([(self.now, actor, action, subject, note) for note in notes])

    # Continuations: what does not fit into this transaction.

    def defer(
        self, kind: str, graph: int, tasks: Sequence[str] = ("",), actor: str = "", *, counted: bool = True
    ) -> None:
        """Leave continuations about a graph, one for each text in `tasks`, to be run in this order.

        An open continuation counts as active, so its graph cannot finish; `counted` is False if it takes the place of
        another one.
        """
        self.repo.continuations.add([(kind, graph, None, None, None, text, actor) for text in tasks])
        self._has_continuations = True
        if counted:
            self.adjust_counts(graph, active=len(tasks))

    def expect_continuations(self) -> None:
        """Have the engine look for open continuations: a commit whose outcome was lost may have left some."""
        self._has_continuations = True

    def complete(self, continuation: Continuation) -> None:
        """Delete a continuation that is done."""
        self.repo.continuations.delete(continuation.id)
        self.adjust_counts(continuation.graph, active=-1)

    # The end.

    def finish(self) -> None:
        """Write the counts, states and events of the graphs."""
        self._written += self._writes.write(self.repo, self.now)
        self.repo.admission.mark_dirty(self._dirty)
        graphs = self.repo.graphs.get_locked(sorted(self._deltas))
        failure_handlers.check_reruns(self.repo, self._rerun_graphs, self._deferred_runs)
        self.repo.graphs.write_states([self._graph_row(graph, self._deltas[graph.id]) for graph in graphs])
        self.repo.events.add(self.now, [(graph.id, graph.events, self._deltas[graph.id].events) for graph in graphs])

    # What the engine reads, before and after the commit.

    @property
    def entered_queues(self) -> Sequence[int]:
        """The queue of each task that came into one."""
        return self._entered_queues

    @property
    def stopping(self) -> Sequence[TaskRecord]:
        """Tasks that their bots have to stop."""
        return self._stopping

    @property
    def changed_bots(self) -> Collection[str]:
        """Bots whose parked polls have to be answered."""
        return self._changed_bots

    @property
    def serves_all_queues(self) -> bool:
        """Whether parked polls get whatever is in their queues, not only what this transaction put there."""
        return self._serves_all_queues

    def serve_all_queues(self) -> None:
        """Have parked polls get whatever is in their queues."""
        self._serves_all_queues = True

    def serve_queues(self, tasks: Mapping[int, int]) -> None:
        """Have parked polls get what another server left in queues: so many tasks in each."""
        for queue, count in tasks.items():
            self._entered_queues += [queue] * min(count, OFFERED_MAX)

    def stop_again(self, tasks: Collection[int]) -> None:
        """Have parked polls learn of tasks that another server asked to stop, if they are still to be stopped."""
        self._stopping += [task for task in self.lock_tasks(tasks).values() if task.state in _TO_STOP]

    def note_repeating(self, bot: str) -> None:
        """Note that a bot repeats a poll: the first copy may wait at another server, on a connection that is lost."""
        self._repeating_bots.add(bot)

    def note_printed(self, tasks: Collection[int]) -> None:
        """Note that tasks printed something."""
        self._printed.update(tasks)

    # What other servers may wait for.

    @property
    def bots_elsewhere(self) -> Collection[str]:
        """Bots whose polls other servers have to answer: they have changed, or have come here."""
        return self._changed_bots | self._repeating_bots

    @property
    def changed_graphs(self) -> Sequence[int]:
        """Graphs that changed their state, settled, or are active again."""
        return self._changed_graphs

    @property
    def is_dirty(self) -> bool:
        """Whether an admission pass has something to look at."""
        return bool(self._dirty)

    @property
    def changed_events(self) -> bool:
        """Whether events were recorded."""
        return bool(self._deltas)

    def left_in_queues(self) -> Mapping[int, int]:
        """Count the tasks that came into queues of bots and were not taken from there, by queue."""
        if not self._entered_queues:
            return {}
        return Counter(
            task.queue for task in self._written if task.queue != SERVER_QUEUE and task.life.state in _QUEUED
        )

    def printed_tasks(self) -> Collection[int]:
        """Return the tasks that printed something, and those that have ended."""
        ended = {task.id for task in self._written if task.life.state in ENDED} if self._attempts_ended else set()
        return self._printed | ended

    def follow_up(self) -> FollowUp:
        """Return what remains to be done."""
        continuations, server_tasks, subgraphs, due = self._has_continuations, False, False, _NEVER
        moved: dict[int, tuple[int, State]] = {}  # a task may have been written twice
        now = self.now
        for task in self._written:
            if task.moved_ms == now and task.life.state in _COUNTED:
                moved[task.id] = (task.queue, task.life.state)
            if task.due_ms is not None and task.due_ms < due:
                due = task.due_ms
            if task.open_continuations:
                continuations = True
            if task.queue == SERVER_QUEUE and task.life.state in _QUEUED:
                if task.kind in _GRAPHS:
                    subgraphs = True
                else:
                    server_tasks = True
        return FollowUp(
            bool(self._dirty),
            continuations,
            server_tasks,
            subgraphs,
            self._has_children,
            self._attempts_ended,
            tuple(self._changed_graphs),
            None if due is _NEVER else due,
            moved.values(),
            self.inserted,
        )

    # How transitions are carried out.

    def _carry_out(self, transitions: Sequence[Transition]) -> None:
        """Carry out transitions, and note what follows from each."""
        writes, deltas, now = self._writes, self._deltas, self.now
        for transition in transitions:
            task, life, claimant = transition.task, transition.life, transition.claimant
            source, bot, reason = task.life.state, task.bot, transition.reason.text
            arrow = COMPILED_ARROWS[source, transition.signal, life.state]
            delta = deltas.get(task.graph) or self._delta(task.graph)
            if arrow.counts:
                delta.active += arrow.active
                delta.behind += arrow.behind
                if arrow.fails:
                    self._count_failure(transition, delta)
            if arrow.leased < 0:
                self._attempts_ended = True
                writes.ended.append((task.id, life.attempt, now, transition.signal.text, reason, transition.exit_code))
                task.bot = task.lease_until_ms = None
            elif claimant is not None:
                delta.started = True
                bot = task.bot = claimant.bot
                task.fence, task.avoid_bot = attempt_policy.fence_after(task.fence, now), None
                task.lease_until_ms = claimant.until_ms
                writes.begun.append(_attempt_row(task, life, claimant, now))
            task.life, task.reason, task.moved_ms = life, reason, now
            delta.record(task.id, encode_fact(arrow.encoded, life.attempt, bot, reason), arrow.is_consequence)
            if arrow.concerns_bots:
                self._note_for_bots(task, arrow)
            if not arrow.is_over or task.is_handler or task.needs_admission:
                self._note_consequences(transition, source, arrow)
            writes.move(task, source, arrow.kind)

    def _note_for_bots(self, task: TaskRecord, arrow: CompiledArrow) -> None:
        """Note what parked polls are answered with: a task in their queue, or one to stop."""
        if arrow.stops:
            self._stopping.append(task)
        else:
            self._entered_queues.append(task.queue)

    def _count_failure(self, transition: Transition, delta: _GraphDelta) -> None:
        """Count a failure as unhandled if it is new, and not any more if it is over."""
        task, source, target = transition.task, transition.task.life.state, transition.life.state
        delta.unhandled -= unhandled(source, task.handlers)
        if target in UNSUCCESSFUL and source not in UNSUCCESSFUL:
            task.handlers = Handlers()  # the propagation along its edges counts them
        delta.unhandled += unhandled(target, task.handlers)

    def _note_consequences(self, transition: Transition, source: State, arrow: CompiledArrow) -> None:
        """Note what this transition requires next."""
        task = transition.task
        if task.is_update or task.rules.idempotent:
            self._note_for_others(transition, source, arrow)
        if (arrow.propagates or task.is_handler) and not self._is_quiet(task.graph):
            if arrow.propagates:
                self._to_propagate.append((task, source, transition.life.state))
            if task.is_handler:
                self._handlers_moved.append((task, source))
        if arrow.listens:
            self.recheck_gates([task])
        if arrow.judged:
            self._to_admit.append((task, transition.signal))
        elif task.needs_admission and arrow.dirties:
            self._dirty.append(task.id)

    def _note_for_others(self, transition: Transition, source: State, arrow: CompiledArrow) -> None:
        """Note that tasks of other graphs may have waited for this: equal ones, or links."""
        task = transition.task
        if arrow.leaves_key and task.rules.idempotent:
            self._left_keys.append((task, source, transition.signal))
        if task.is_update and task.life.state in ENDED:
            self._ended_updates.append(task)

    def _is_quiet(self, graph: int) -> bool:
        """Whether nothing is propagated in a graph: it is canceled, so nothing in it starts any more."""
        return graph in self._quiet or self.is_canceled(graph)

    def _next(self) -> list[Transition]:
        """Propagate the last transitions; return those that follow."""
        self._propagate()
        of_followers: list[Transition] = []
        if self._left_keys:
            left_keys, self._left_keys = self._left_keys, []
            of_followers = reuse.leave_keys(self, left_keys)
        if self._ended_updates:
            ended, self._ended_updates = self._ended_updates, []
            of_followers = [*of_followers, *links.end_linked(self, ended)]
        to_admit, self._to_admit = self._to_admit, []
        return [*self._recheck(), *of_followers, *release.admit(self, to_admit)]

    def _propagate(self) -> None:
        handlers, self._handlers_moved = self._handlers_moved, []
        changes, self._to_propagate = self._to_propagate, []
        if handlers:
            edges, deferred_runs = failure_handlers.to_failures(self, handlers, changes, self.edge_budget)
            self.edge_budget -= edges
            self._deferred_runs |= deferred_runs
        if changes:
            self.edge_budget -= propagate.to_dependents(self, changes, self.edge_budget)

    def _recheck(self) -> list[Transition]:
        """Look at the gates of tasks whose edges changed, or that have come to wait for them."""
        tasks, self._to_recheck = self._to_recheck, {}
        transitions = []
        for task in tasks.values():
            state = task.life.state
            if state not in LISTENING:
                continue
            found = signals(state, gate(task.edges, task.join, task.on_impossible), self.is_canceled(task.graph))
            if found:
                # A mend leads to unscheduled, where the gate is looked at again: so only the first signal is applied.
                transitions.append(transition_by(task, found[0]))
        return transitions

    def _delta(self, graph: int) -> _GraphDelta:
        found = self._deltas.get(graph)
        if found is None:
            found = self._deltas[graph] = _GraphDelta()
        return found

    def _graph_row(self, graph: GraphRecord, delta: _GraphDelta) -> Row:
        if graph.canceled_ms is not None and (delta.started or self._was_not_canceled(graph.id)):
            raise TransactionConflict("the graph was canceled meanwhile")
        old = graph.tally
        tally = Tally(old.active + delta.active, old.behind + delta.behind, old.unhandled + delta.unhandled)
        if not tally.active and graph.parent is not None and graph.id not in self._delivered:
            tally = self._kept_active(graph, tally)
        state = verdict(tally, graph.canceled_ms is not None)
        if state is not graph.state or settled(tally) != settled(old):
            self._changed_graphs.append(graph.id)
        if state is not graph.state:
            if over(graph.state):
                raise TransactionConflict("the graph ended meanwhile")
            delta.record(graph.id, _graph_event(graph.state, state))
        events = graph.events + sum(len(facts) for _, facts in delta.events)
        return (graph.id, str(state), tally.active, tally.behind, tally.unhandled, events, self.now)

    def _was_not_canceled(self, graph: int) -> bool:
        """Whether this transaction has read a graph as not canceled, and may have started something in it."""
        return graph in self._graphs and not self.is_canceled(graph)

    def _kept_active(self, graph: GraphRecord, tally: Tally) -> Tally:
        """Keep a graph inside a task active, by a continuation, until that task knows that the graph has settled."""
        self.defer(SETTLED, graph.id, counted=False)
        return Tally(1, tally.behind, tally.unhandled)


class PendingWrites:
    """What a transaction has changed and not written yet.

    Several transitions of one task are written as one, from the state that was read to the last one, with the last
    arrow. One statement writes what many tasks have in common. So the cost of a transaction follows its tasks, not its
    transitions.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._moved: dict[int, tuple[TaskRecord, State, MoveKind]] = {}
        self._changed: dict[int, TaskRecord] = {}
        self._edges_changed: dict[int, TaskRecord] = {}
        self.begun: list[Row] = []  # attempts
        self.ended: list[Row] = []

    def move(self, task: TaskRecord, source: State, kind: MoveKind) -> None:
        """Write a task that came from `source`, by a transition that can change the columns of `kind`."""
        id = task.id
        if id in self._moved:
            kind = _COMBINED.get((self._moved[id][2], kind), _ANY)
        self._moved[id] = (task, source, kind)

    def change(self, task: TaskRecord) -> None:
        """Write a task of which anything may have changed but its state."""
        self._changed[task.id] = task

    def change_edges(self, tasks: Mapping[int, TaskRecord]) -> None:
        """Write the edge counts of tasks."""
        self._edges_changed.update(tasks)

    def newly_queued(self) -> list[TaskRecord]:
        """Return the queued tasks that the database does not have in a queue yet."""
        return [task for task, _, _ in self._moved.values() if task.life.state in QUEUED and task.stored not in QUEUED]

    def newly_leased(self) -> list[TaskRecord]:
        """Return the leased tasks that are not leased in the database yet."""
        return [task for task, _, _ in self._moved.values() if task.life.state in LEASED and task.stored not in LEASED]

    def has_ends(self) -> bool:
        """Whether a task has ended by it."""
        return any(task.life.state in ENDED for task, _, _ in self._moved.values())

    def write(self, repo: Repo, now: Millis) -> list[TaskRecord]:
        """Write everything, and be empty again; return the tasks that moved or changed."""
        moved, changed = self._moved, self._changed
        if moved:
            self._write_moved(repo, now)
        tasks = [task for task, _, _ in moved.values()]
        if changed:
            unmoved = [task for id, task in changed.items() if id not in moved]
            repo.tasks.write_unmoved(unmoved)
            tasks += unmoved
        repo.tasks.write_edge_counts(
            [task for id, task in self._edges_changed.items() if id not in moved and id not in changed]
        )
        repo.attempts.add(self.begun)
        repo.attempts.end(self.ended)
        self._clear()
        return tasks

    def _write_moved(self, repo: Repo, now: Millis) -> None:
        by_kind: dict[MoveKind, list[tuple[TaskRecord, State]]] = defaultdict(list)
        for id, (task, source, kind) in self._moved.items():
            task.due_ms = due_at(task.life, task.rules, task.lease_until_ms, now)
            whole = id in self._changed or (id in self._edges_changed and kind not in _WITH_EDGES)
            by_kind[_ANY if whole else kind].append((task, source))
        for kind, moved in by_kind.items():
            repo.tasks.write_moved(moved, kind)


def _attempt_row(task: TaskRecord, life: Life, claimant: Claimant, now: Millis) -> Row:
    session, poll, snapshot = claimant.session, claimant.poll, claimant.snapshot
    return (task.id, life.attempt, claimant.bot, session, poll, task.fence, life.round, life.slice_index, now, snapshot)


def _graph_event(source: GraphState | None, target: GraphState, signal: str | None = None) -> str:
    return encode_fact(encode_transition(source and source.text, target.text, signal), None, None, None)
