"""The corridor: where every move of every task is carried out, whatever room it comes from.

`send` takes tasks along arrows, writes what follows from the two ends of each move, and goes on with whatever that
moves in turn: dependents that are released or blocked, tasks that are admitted at once. `close` then writes what all
of it made of the graphs, and the events, numbered by their graph while its row is held: so they are in order.

One corridor is one transaction. It decides nothing: the machine says where a signal leads, the core says the rest.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskyard.core import attempt_policy, fleet
from taskyard.core.attempt_policy import Life, due_at
from taskyard.core.explain_text import lacking_says
from taskyard.core.fleet import BotFacts
from taskyard.core.graph.gate import LISTENING, gate, signals
from taskyard.core.graph.state import Handlers, Tally, over, settled, unhandled, verdict
from taskyard.core.matching import Dimensions
from taskyard.core.states import HOLDING, LEASED, QUEUED, UNSUCCESSFUL, GraphState, Kind, Millis, Signal, State
from taskyard.core.structs import value
from taskyard.lifecycle import failure_handlers, propagate, release
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import SERVER_QUEUE, SETTLED
from taskyard.lifecycle.transition import COMPILED_ARROWS, Claimant, CompiledArrow, Transition, transition_by
from taskyard.store.connection import Repo
from taskyard.store.queries import Row, TransactionConflict
from taskyard.store.repo.events import encode_fact, encode_transition
from taskyard.store.repo.tasks import MoveKind
from taskyard.store.rows import GraphRecord, TaskRecord

# What a transaction has moved and changed, and not yet written.
#
# Several moves of one task are written as one: from where it was looked at to where it ended, with the last arrow. And
# what many tasks went through is written by one statement, so the cost of a transaction follows its tasks, not its
# steps.


#: What one shape after another comes to; any other pair comes to anything.
_TOGETHER: Final[Mapping[tuple[MoveKind, MoveKind], MoveKind]] = {
    (MoveKind.READY, MoveKind.READY): MoveKind.READY,
    (MoveKind.READY, MoveKind.STARTED): MoveKind.SENT,
}
#: The shapes that write what edges know.
_WITH_EDGES: Final = frozenset({MoveKind.READY, MoveKind.SENT})
_ANY: Final = MoveKind.ANY


class PendingWrites:
    """Tasks that moved, tasks that changed, attempts that began and ended."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._moved: dict[int, tuple[TaskRecord, State, MoveKind]] = {}
        self._changed: dict[int, TaskRecord] = {}
        self._recounted: dict[int, TaskRecord] = {}
        self.begun: list[Row] = []  # attempts
        self.ended: list[Row] = []

    def move(self, task: TaskRecord, source: State, shape: MoveKind) -> None:
        """A task came from `source` to where it is, by a move that can change the columns of `shape`."""
        id = task.id
        if id in self._moved:
            shape = _TOGETHER.get((self._moved[id][2], shape), _ANY)
        self._moved[id] = (task, source, shape)

    def change(self, task: TaskRecord) -> None:
        """Something about a task changed."""
        self._changed[task.id] = task

    def recount(self, tasks: Mapping[int, TaskRecord]) -> None:
        """The edges of tasks know something else."""
        self._recounted.update(tasks)

    def unwritten(self) -> list[TaskRecord]:
        """Name the tasks that stand in a queue, and of which the database does not know it yet."""
        return [task for task, _, _ in self._moved.values() if task.life.state in QUEUED and task.stored not in QUEUED]

    def write(self, repo: Repo, now: Millis) -> list[TaskRecord]:
        """Write everything, and be empty again; name those that moved or changed."""
        moved, changed = self._moved, self._changed
        if moved:
            self._write_moves(repo, now)
        written = [task for task, _, _ in moved.values()]
        if changed:
            kept = [task for id, task in changed.items() if id not in moved]
            repo.tasks.write_unmoved(kept)
            written += kept
        repo.tasks.write_edge_counts(
            [task for id, task in self._recounted.items() if id not in moved and id not in changed]
        )
        repo.attempts.add(self.begun)
        repo.attempts.end(self.ended)
        self._clear()
        return written

    def _write_moves(self, repo: Repo, now: Millis) -> None:
        by_shape: dict[MoveKind, list[tuple[TaskRecord, State]]] = defaultdict(list)
        for id, (task, source, shape) in self._moved.items():
            task.due_ms = due_at(task.life, task.rules, task.lease_until_ms, now)
            whole = id in self._changed or (id in self._recounted and shape not in _WITH_EDGES)
            by_shape[_ANY if whole else shape].append((task, source))
        for shape, moved in by_shape.items():
            repo.tasks.write_moved(moved, shape)


#: How many edges are told in one transaction; what is beyond is left as a note. It keeps a transaction under 100 ms.
PROPAGATED_MAX: Final = 1_000


@value
class ServerIdentity:
    """One server: its name, which stays the same after a restart, and when it was started."""

    name: str = ""  # a database that has one server has one without a name
    began_ms: Millis = Millis(0)


#: The only server there is.
SINGLE_SERVER: Final = ServerIdentity()


#: In a queue.
_QUEUED: Final = HOLDING - LEASED
_GRAPH: Final = Kind.GRAPH.text
#: Later than any moment.
_NEVER: Final = Millis(2**63)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What a transaction left to do."""

    stirs: bool = False  # a pass of admission has something to look at
    promises: bool = False  # notes are open
    own: bool = False  # something is queued that the server runs itself,
    inner: bool = False  # or that has a graph inside
    turned: tuple[int, ...] = ()  # graphs that came into another state, or to rest
    due_ms: Millis | None = None  # when the clock first has something to say about a task that it wrote


@dataclass(slots=True)
class _Sum:
    """What the moves of one transaction add up to for one graph."""

    active: int = 0
    behind: int = 0
    unhandled: int = 0
    facts: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))  # by subject, in order
    started: bool = False


class Transaction:
    """One transaction: its moves and what follows from them."""

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
        self.server = server  # which one this transaction is of
        self.deferring = False  # while true, moves are written only by `close`, and looks by state miss them
        self.edge_budget = PROPAGATED_MAX  # how many more edges this transaction may tell
        self.to_tell: list[tuple[TaskRecord, State, State]] = []
        self.to_ask: dict[int, TaskRecord] = {}
        self.handlers_moved: list[tuple[TaskRecord, State]] = []
        self.ran_untold: set[int] = set()  # tasks that ran to their end, which their prerequisites hear later
        self.new_rounds: set[int] = set()  # graphs in which something is rerun
        self.to_admit: list[tuple[TaskRecord, Signal]] = []
        self.stirred: list[int | None] = []
        self.hushed: set[int] = set()  # graphs that are being canceled: what moves in them is told to nobody
        self.queued: list[int] = []  # a queue for each task that came into one
        self.turned: list[int] = []  # graphs that came into another state, or to rest, or to move again
        self.stopped: list[TaskRecord] = []  # whoever runs these has to end them
        self.altered: set[str] = set()  # bots about whom something is new: what they wait for may be another now
        self.heard: set[int] = set()  # graphs inside tasks that came to rest, and whose tasks know it
        self.noted = False  # notes were left that nobody outside knows of
        self.promised = False  # somebody knows that notes were left
        self.serves_all = False  # polls that wait get whatever is in their queues
        self.written: list[TaskRecord] = []  # whoever moved or changed, each time that this was written
        self._sheet = PendingWrites()
        self._sums: dict[int, _Sum] = {}
        self._graphs: dict[int, GraphRecord] = {}
        self._fleet: tuple[BotFacts, ...] | None = None
        self._capacity: dict[Dimensions, bool] = {}
        self._lacking: dict[tuple[Dimensions, ...], str] = {}
        self._limited: frozenset[str] | None = None

    # Looking. What was looked at once stays looked at, and is as this transaction has made it.

    def lock_tasks(self, ids: Collection[int]) -> dict[int, TaskRecord]:
        """Give the tasks with these ids; nobody else moves them before this transaction ends."""
        return self.repo.tasks.get(ids)

    def known_task(self, id: int) -> TaskRecord | None:
        """Give a task if this transaction knows it: it may know better than the database by now."""
        return self.repo.tasks.cached(id)

    def graph(self, id: int) -> GraphRecord:
        """Give a graph as it was when this transaction first asked."""
        if id not in self._graphs:
            self._graphs[id] = self.repo.graphs.get(id)
        return self._graphs[id]

    def is_canceled(self, graph: int) -> bool:
        """Tell whether a graph is canceled."""
        return (self._graphs.get(graph) or self.graph(graph)).canceled_ms is not None

    def cancel_graph(self, graph: int) -> None:
        """Keep the fact that a graph is canceled: from here on nothing in it starts."""
        self.repo.graphs.mark_canceled(graph, self.now)
        self._graphs.pop(graph, None)
        self.hushed.add(graph)
        self.adjust_counts(graph)

    def bots(self) -> tuple[BotFacts, ...]:
        """Give every bot."""
        if self._fleet is None:
            self._fleet = tuple(bot.facts for bot in self.repo.bots.read_all())
        return self._fleet

    def has_capacity(self, dimensions: Dimensions) -> bool:
        """Tell whether a bot was seen that could serve these dimensions."""
        known = self._capacity.get(dimensions)
        if known is None:
            known = self._capacity[dimensions] = fleet.capacity_seen(dimensions, self.bots())
        return known

    def missing_dimensions(self, asked: tuple[Dimensions, ...]) -> str:
        """Say what no live bot has for each of some ways to run a task."""
        known = self._lacking.get(asked)
        if known is None:
            live = [bot for bot in self.bots() if fleet.alive(bot)]
            known = self._lacking[asked] = lacking_says(asked, live)
        return known

    def has_pool_limit(self, queue: int) -> bool:
        """Tell whether the pool of a queue has a capacity."""
        if self._limited is None:
            pools = self.repo.admission.locked_pools()
            self._limited = frozenset(pool.name for pool in pools if pool.from_bots or pool.capacity is not None)
        return bool(self._limited) and self.registry.queue(self.repo, queue).pool in self._limited

    # Moving.

    def apply(self, moves: Sequence[Transition] = ()) -> None:
        """Take tasks along arrows, each of them once, and go on with whatever follows from it or was asked before."""
        wave = moves or self._next()
        while wave:
            self._carry(wave)
            wave = self._next()
        if not self.deferring:
            self.written += self._sheet.write(self.repo, self.now)

    def unwritten_in(self, queues: Collection[int]) -> list[TaskRecord]:
        """Name the tasks that this transaction put into queues and has not written yet."""
        return [task for task in self._sheet.unwritten() if task.queue in queues]

    def recheck_gates(self, tasks: Iterable[TaskRecord]) -> None:
        """Have the gates of tasks asked by the next `send`."""
        for task in tasks:
            if not task.loading:
                self.to_ask[task.id] = task

    def record_created(self, graph: int) -> None:
        """Note that a graph was born."""
        self._sum(graph).facts[graph].append(_turned(None, GraphState.RUNNING))

    def mark_changed(self, task: TaskRecord) -> None:
        """Note that something about a task changed though it did not move; `send` or `close` writes it."""
        self._sheet.change(task)

    def mark_edges_changed(self, tasks: Mapping[int, TaskRecord]) -> None:
        """Note that the edges of tasks know something else now."""
        self._sheet.recount(tasks)

    def mark_dirty(self, task: int | None) -> None:
        """Have the next admission pass look at a task, or at all bots and pools if it is None."""
        self.stirred.append(task)

    def mark_bot_changed(self, bot: str) -> None:
        """Have the parked poll of a bot answered anew: what it waits for may have changed."""
        self.altered.add(bot)

    def set_handlers(self, task: TaskRecord, handlers: Handlers) -> None:
        """Note how the failure of a task is dealt with now."""
        before = unhandled(task.state, task.handlers)
        task.handlers = handlers
        self.adjust_counts(task.graph, unhandled=unhandled(task.state, handlers) - before)
        self.mark_changed(task)

    def adjust_counts(self, graph: int, active: int = 0, behind: int = 0, unhandled: int = 0) -> None:
        """Add to what a graph counts."""
        into = self._sum(graph)
        into.active += active
        into.behind += behind
        into.unhandled += unhandled

    def audit(self, actor: str, action: str, subject: int, note: str = "") -> None:
        """Note what a person asked for."""
        self.repo.events.add_audits([(self.now, actor, action, subject, note)])

    def finish(self) -> None:
        """Write what the moves made of their graphs, and the events."""
        self.written += self._sheet.write(self.repo, self.now)
        self.repo.admission.mark_dirty(self.stirred)
        graphs = self.repo.graphs.get_locked(sorted(self._sums))
        failure_handlers.check_rounds(self)
        self.repo.graphs.write_states([self._turn(graph, self._sums[graph.id]) for graph in graphs])
        self.repo.events.add(self.now, [(graph.id, graph.events, self._sums[graph.id].facts) for graph in graphs])

    def follow_up(self) -> FollowUp:
        """Tell what there is to do now."""
        promised, own, inner, due = self.promised or self.noted, False, False, _NEVER
        for task in self.written:
            if task.due_ms is not None and task.due_ms < due:
                due = task.due_ms
            if task.open_continuations:
                promised = True
            if task.queue == SERVER_QUEUE and task.life.state in _QUEUED:
                if task.kind == _GRAPH:
                    inner = True
                else:
                    own = True
        turned = tuple(self.turned)
        return FollowUp(bool(self.stirred), promised, own, inner, turned, None if due is _NEVER else due)

    # How it is done.

    def _carry(self, moves: Sequence[Transition]) -> None:
        """Carry out the moves themselves, and note what follows from each."""
        sheet, sums, now = self._sheet, self._sums, self.now
        for move in moves:
            task, life, taker = move.task, move.life, move.taker
            source, bot, reason = task.life.state, task.bot, move.reason.text
            way = COMPILED_ARROWS[source, move.signal, life.state]
            added = sums.get(task.graph) or self._sum(task.graph)
            if way.counts:
                added.active += way.active
                added.behind += way.behind
                if way.fails:
                    self._count_failure(move, added)
            if way.leased < 0:
                sheet.ended.append((task.id, life.attempt, now, move.signal.text, reason, move.exit_code))
                task.bot = task.lease_until_ms = None
            elif taker is not None:
                added.started = True
                bot = task.bot = taker.bot
                task.fence, task.avoid_bot = attempt_policy.fence_after(task.fence, now), None
                task.lease_until_ms = taker.until_ms
                sheet.begun.append(_attempt(task, life, taker, now))
            task.life, task.reason, task.moved_ms = life, reason, now
            added.facts[task.id].append(encode_fact(way.spelled, life.attempt, bot, reason))
            if way.concerns_bots:
                self._tell_bots(task, way)
            if not way.is_over or task.is_handler or task.needs_admission:
                self._follow(move, source, way)
            sheet.move(task, source, way.shape)

    def _tell_bots(self, task: TaskRecord, way: CompiledArrow) -> None:
        """Note what bots that wait should hear of: work, or an end to it."""
        if way.stops:
            self.stopped.append(task)
        else:
            self.queued.append(task.queue)

    def _count_failure(self, move: Transition, added: _Sum) -> None:
        """Count whether a failure is dealt with: one that is over no longer is, one that is new not yet."""
        task, source, target = move.task, move.task.life.state, move.life.state
        added.unhandled -= unhandled(source, task.handlers)
        if target in UNSUCCESSFUL and source not in UNSUCCESSFUL:
            task.handlers = Handlers()  # they are counted as they are told
        added.unhandled += unhandled(target, task.handlers)

    def _follow(self, move: Transition, source: State, way: CompiledArrow) -> None:
        """Note what this move asks to be done next."""
        task = move.task
        if (way.tells or task.is_handler) and not self._is_hushed(task.graph):
            if way.tells:
                self.to_tell.append((task, source, move.life.state))
            if task.is_handler:
                self.handlers_moved.append((task, source))
        if way.listens:
            self.recheck_gates([task])
        if way.judged:
            self.to_admit.append((task, move.signal))
        elif task.needs_admission and way.stirs:
            self.stirred.append(task.id)

    def _is_hushed(self, graph: int) -> bool:
        """Tell whether nobody is told what moves in a graph: it is canceled, and starts nothing any more."""
        return graph in self.hushed or self.is_canceled(graph)

    def _next(self) -> list[Transition]:
        propagate.to_dependents(self)
        return [*self._asked(), *release.transitions_of(self)]

    def _asked(self) -> list[Transition]:
        """Ask the gates of those whose edges changed, or that came to wait for them."""
        asked, self.to_ask = self.to_ask, {}
        moves = []
        for task in asked.values():
            state = task.life.state
            if state not in LISTENING:
                continue
            wanted = gate(task.edges, task.join, task.on_impossible)
            wished = signals(state, wanted, self.is_canceled(task.graph))
            if wished:
                # A mend leads to unscheduled, where the gate is asked again: so only the first signal is sent.
                moves.append(transition_by(task, wished[0]))
        return moves

    def _sum(self, graph: int) -> _Sum:
        found = self._sums.get(graph)
        if found is None:
            found = self._sums[graph] = _Sum()
        return found

    def _thought_uncanceled(self, graph: int) -> bool:
        """Tell whether gates of a graph were asked as if it were not canceled."""
        return graph in self._graphs and not self.is_canceled(graph)

    def _turn(self, graph: GraphRecord, added: _Sum) -> Row:
        if graph.canceled_ms is not None and (added.started or self._thought_uncanceled(graph.id)):
            raise TransactionConflict("the graph was canceled meanwhile")
        had = graph.tally
        tally = Tally(had.active + added.active, had.behind + added.behind, had.unhandled + added.unhandled)
        if not tally.active and graph.parent is not None and graph.id not in self.heard:
            tally = self._held_up(graph, tally)
        state = verdict(tally, graph.canceled_ms is not None)
        if state is not graph.state or settled(tally) != settled(had):
            self.turned.append(graph.id)
        if state is not graph.state:
            if over(graph.state):
                raise TransactionConflict("the graph ended meanwhile")
            added.facts[graph.id].append(_turned(graph.state, state))
        events = graph.events + sum(map(len, added.facts.values()))
        return (graph.id, str(state), tally.active, tally.behind, tally.unhandled, events, self.now)

    def _held_up(self, graph: GraphRecord, tally: Tally) -> Tally:
        """Keep a graph inside a task from its rest until that task has heard of it, by a note."""
        self.repo.continuations.add([(SETTLED, graph.id, None, None, None, "", "")])
        self.noted = True
        return Tally(1, tally.behind, tally.unhandled)


def _attempt(task: TaskRecord, life: Life, taker: Claimant, now: Millis) -> Row:
    session, poll = taker.session, taker.poll
    return (task.id, life.attempt, taker.bot, session, poll, task.fence, life.round, life.slice_index, now)


def _turned(source: GraphState | None, target: GraphState) -> str:
    return encode_fact(encode_transition(source and source.text, target.text, None), None, None, None)
