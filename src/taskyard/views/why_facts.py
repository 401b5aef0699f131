"""What is known about tasks that somebody asks about: rows of the store as the facts that `core.explain` judges by.

What many tasks share is read once. Nothing here writes, and nothing is told of graphs and bots that the asker may not
see.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace as replaced
from functools import cached_property
from typing import Final, Protocol, TypeAlias

from taskyard.core import explain, fleet
from taskyard.core.budget import expires_at, given_again_at
from taskyard.core.explain import Ahead, Bots, Ending, Other, Prerequisite, Situation, SliceWait, hangs_on, says_no
from taskyard.core.fleet import BotFacts
from taskyard.core.graph.gate import EdgeState, known
from taskyard.core.ids import Key, text_of
from taskyard.core.machine import ENDED, LEASED, QUEUED
from taskyard.core.matching import POOL, Dimensions, matches
from taskyard.core.values import replace
from taskyard.core.words import BotId, Kind, Millis, On, Reason, State, TaskId
from taskyard.lifecycle.cancel import CANCEL
from taskyard.lifecycle.release import NO_BOT
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.store.connection import Txn
from taskyard.store.repo.read import Turn
from taskyard.store.rows import TaskRecord
from taskyard.views.ancestry import ancestors
from taskyard.views.bots import fleet as read_fleet

#: How many prerequisites that say no are read for one task.
EDGES_MAX: Final = 100
#: How many tasks that stand before another are counted.
AHEAD_MAX: Final = 10_000
#: How many cancels are read to find out who wanted tasks to end.
WISHES_MAX: Final = 500
#: For how many tasks it is found out who ended them with others.
TRACED_MAX: Final = 10
#: What a bot is called that the asker may not see.
UNSEEN_BOT: Final = BotId("a bot that you may not see")

#: The ends that an attempt brought about.
_BY_ATTEMPT: Final = frozenset(
    {
        Reason.DONE,
        Reason.EXIT_CODE,
        Reason.SIGNALED,
        Reason.TIMED_OUT,
        Reason.SILENT,
        Reason.BAD_RESULT,
        Reason.BOT_LOST,
        Reason.DENIED,
        Reason.GRAPH_FAILED,
    }
)


#: A prerequisite, on which of its ends it is required, and where it is.
_Edge: TypeAlias = tuple[int, On, State]


class Sight(Protocol):
    """What the asker may see."""

    def graph(self, graph: int) -> bool:
        """Tell whether they may see a graph."""

    def bots_of(self, pools: Collection[str]) -> bool:
        """Tell whether they may see the bots of some pools."""


class Facts:
    """One look at the store, for one question.

    A `brief` one is for many tasks and their reasons alone: it leaves out prerequisites, who stands before a task, what
    is in use, and the graph inside a task.
    """

    def __init__(self, txn: Txn, now: Millis, sight: Sight, brief: bool = False) -> None:
        self.txn = txn
        self.now = now
        self.brief = brief
        self._sight = sight
        self._labels: dict[int, str] = {}
        self._queues: dict[int, tuple[str, Dimensions]] = {}
        self._bots: dict[tuple[Dimensions, str | None], Bots] = {}
        self._enders: dict[int, str | None] = {}  # who canceled each graph; None if nobody did

    def situations(self, records: Sequence[TaskRecord]) -> list[Situation]:
        """Say what is known about tasks, but for what a pass said of them."""
        edges = {one.id: [] if self.brief else self._edges(one) for one in records}
        near = {id: state for found in edges.values() for id, _, state in found}
        self._learn_labels([*edges, *near])
        self._learn_queues({one.queue for one in records})
        over = self.txn.tasks.look([id for id, state in near.items() if state in ENDED])
        ended = {one.id: one for one in (*over, *records) if one.state in ENDED}
        endings = self._endings(list(ended.values()))
        return [self._situation(one, edges[one.id], endings) for one in records]

    def queue(self, id: int) -> tuple[str, Dimensions]:
        """Give the pool and the dimensions of a queue."""
        self._learn_queues({id})
        return self._queues[id]

    def other(self, task: int) -> Other | None:
        """Name another task, if it is there; of one that the asker may not see, only where it is."""
        found = self.txn.tasks.look([task])
        if not found or not self._sight.graph(found[0].graph):
            return Other(found[0].state) if found else None
        self._learn_labels([task])
        return Other(found[0].state, _text(task), self._labels[task], text_of(Key(found[0].graph)))

    @cached_property
    def fleet(self) -> tuple[tuple[BotFacts, ...], bool]:
        """Every bot, as many as are looked at; and whether these are all."""
        return read_fleet(self.txn)

    def bots(self, dimensions: Dimensions, lost_by: str | None = None) -> Bots:
        """Say how the bots stand for what asks for dimensions; one that the asker may not see counts, without a name.

        `lost_by` is the bot that has lost the task: it leaves it to others, if there are any.
        """
        known = self._bots.get((dimensions, lost_by))
        if known is None:
            seen = [bot for one in self.fleet[0] if (bot := self._seen(one, dimensions)) is not None]
            known = explain.bots(dimensions, seen, self._leaves(dimensions, lost_by))
            known = self._bots[dimensions, lost_by] = known if self.fleet[1] else replaced(known, whole=False)
        return known

    # How it is done.

    def _situation(self, task: TaskRecord, edges: Sequence[_Edge], endings: dict[int, Ending]) -> Situation:
        dimensions = self._queues[task.queue][1]
        queued = task.state in QUEUED
        own = task.queue == SERVER_QUEUE
        return Situation(
            self._labels[task.id],
            task.state,
            Kind(task.kind),
            prerequisites=tuple(self._prerequisite(one, endings) for one in edges),
            unmet=_unmet(task) if len(edges) == EDGES_MAX else len(edges),
            join=task.join,
            dimensions=dimensions,
            bots=self.bots(dimensions, task.not_by) if queued and not own else None,
            own=own,
            assigned=task.reason == Reason.ASSIGNED,
            ahead=self._ahead(task) if queued and not self.brief else Ahead(),
            slices=_slices(task),
            again=task.life.attempt > task.life.began_after,
            ending_asked=self._ender(task.graph),
            attempt=task.life.attempt,
            bot=_bot(task.bot),
            inside=self._inside(task),
            until=None if task.lease_until_ms is None else given_again_at(Millis(task.lease_until_ms)),
            since=Millis(task.moved_ms),
            ending=endings.get(task.id),
        )

    def _edges(self, task: TaskRecord) -> list[_Edge]:
        states = hangs_on(task.state, task.reason)
        found = self.txn.explaining.prerequisites(task.id, states, EDGES_MAX) if states else []
        return [one for one in found if says_no(task.state, known(one[1], one[2]))]

    def _prerequisite(self, edge: _Edge, endings: dict[int, Ending]) -> Prerequisite:
        id, on, state = edge
        return Prerequisite(self._labels[id], state, known(on, state), on, _text(id), endings.get(id))

    def _endings(self, ended: Sequence[TaskRecord]) -> dict[int, Ending]:
        attempts = self.txn.explaining.endings([one.id for one in ended if Reason(one.reason) in _BY_ATTEMPT])
        actors = self._actors([one for one in ended if one.reason == Reason.ASKED])
        notes = self.txn.explaining.remarks([one.id for one in ended if one.reason == Reason.NO_BOT], NO_BOT)
        found: dict[int, Ending] = {}
        for one in ended:
            last, reason, actor = attempts.get(one.id), Reason(one.reason), actors.get(one.id)
            if last is None:
                found[one.id] = Ending(reason, actor=actor, note=notes.get(one.id, ""))
            else:
                found[one.id] = Ending(reason, last.number, _bot(last.bot), last.exit_code, actor)
        return found

    def _actors(self, canceled: Sequence[TaskRecord]) -> dict[int, str]:
        """Say who last asked for the end of each of some tasks, or of its graph."""
        subjects = {id for one in canceled for id in (one.id, one.graph)}
        said: dict[int, str] = {}
        for subject, actor, _ in self.txn.explaining.wishes(subjects, CANCEL, WISHES_MAX):
            said.setdefault(subject, actor)
        asked = {one.id: said.get(one.id) or said.get(one.graph) for one in canceled}
        ends = [one for one in canceled if not asked[one.id]][:TRACED_MAX]
        asked |= {one.id: self._traced(one) for one in ends}
        return {id: actor for id, actor in asked.items() if actor}

    def _traced(self, task: TaskRecord) -> str | None:
        """Find who ended a task together with one that it hangs on."""
        wishes = self.txn.explaining.wishes(ancestors(self.txn, task.id), CANCEL, WISHES_MAX)
        return next((actor for _, actor, at_ms in wishes if at_ms <= task.moved_ms), None)

    def _ender(self, graph: int) -> str | None:
        if graph not in self._enders:
            found = self.txn.graphs.peek([graph])
            is_canceled = bool(found) and found[0].canceled_ms is not None
            wishes = self.txn.explaining.wishes([graph], CANCEL, 1) if is_canceled else []
            self._enders[graph] = next((actor for _, actor, _ in wishes), "") if is_canceled else None
        return self._enders[graph]

    def _inside(self, task: TaskRecord) -> str | None:
        """Name the graph that the attempt of a task is, if it is one."""
        if self.brief or task.kind != Kind.GRAPH.text or task.state not in LEASED:
            return None
        found = self.txn.graphs.inside([task.id]).get((task.id, task.life.attempt))
        return None if found is None else text_of(Key(found))

    def _ahead(self, task: TaskRecord) -> Ahead:
        turn = Turn(task.priority, task.created_ms, task.id)
        count = self.txn.explaining.ahead(task.queue, turn, AHEAD_MAX)
        return Ahead(count, whole=count < AHEAD_MAX)

    def _leaves(self, dimensions: Dimensions, lost_by: str | None) -> BotId | None:
        if lost_by is None or not fleet.served_elsewhere(dimensions, BotId(lost_by), self.fleet[0]):
            return None
        return BotId(lost_by)

    def _seen(self, bot: BotFacts, dimensions: Dimensions) -> BotFacts | None:
        if self._sight.bots_of(dict(bot.dimensions).get(POOL, ())):
            return bot
        return replace(bot, id=UNSEEN_BOT) if matches(dimensions, bot.dimensions) else None

    def _learn_labels(self, tasks: Iterable[int]) -> None:
        self._labels |= self.txn.explaining.labels([id for id in tasks if id not in self._labels])

    def _learn_queues(self, queues: Iterable[int]) -> None:
        self._queues |= self.txn.explaining.queues([id for id in queues if id not in self._queues])


def _unmet(task: TaskRecord) -> int:
    """Count the edges that say no, as the row of the task has them."""
    edges = task.edges
    counts = {EdgeState.AWAITED: edges.awaited, EdgeState.BROKEN: edges.broken, EdgeState.IMPOSSIBLE: edges.impossible}
    return sum(count for edge, count in counts.items() if says_no(task.state, edge))


def _slices(task: TaskRecord) -> SliceWait:
    return SliceWait(task.life.slice_index + 1, len(task.rules.slices), expires_at(task.life, task.rules))


def _bot(name: str | None) -> BotId | None:
    return None if name in (None, SERVER.bot) else BotId(str(name))


def _text(key: int) -> TaskId:
    return TaskId(text_of(Key(key)))
