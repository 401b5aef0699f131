"""Why a task does not run, down to the root causes: what it waits for, what that waits for, and so on.

The search follows prerequisites, nearest first, up to a limit, and counts those that it did not follow. Each answer is
that of `core.explain`; this module reads the facts for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

from taskyard.core import explain, fleet
from taskyard.core.admission.rules import FOR_CAPACITY, Held, carries, stakes_at
from taskyard.core.attempt_policy import expires_at, given_again_at
from taskyard.core.catalogue.launched import AD_HOC, SOURCE
from taskyard.core.catalogue.model import DocumentKind
from taskyard.core.explain import (
    Ahead,
    Bots,
    Difference,
    Ending,
    Guard,
    Other,
    Prerequisite,
    Situation,
    SliceWait,
    Why,
    hangs_on,
    says_no,
    why,
)
from taskyard.core.explain_text import ending_says, names, sentence
from taskyard.core.fleet import BotFacts, is_external
from taskyard.core.graph.gate import EdgeState, known
from taskyard.core.graph.payload import GRAPH_KINDS
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.launch import Role, rule_words
from taskyard.core.matching import POOL, Dimensions, matches, pool_of
from taskyard.core.resources import without_marks
from taskyard.core.states import (
    ACTIVE,
    ENDED,
    HOLDING,
    LEASED,
    QUEUED,
    UNSUCCESSFUL,
    BotId,
    Kind,
    Millis,
    On,
    Reason,
    Signal,
    State,
    TaskId,
    sources,
)
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.cancel import CANCEL
from taskyard.lifecycle.release import NO_BOT
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.store.connection import Repo
from taskyard.store.repo.admission import HoldRow
from taskyard.store.repo.read import QueuePosition
from taskyard.store.rows import TaskRecord
from taskyard.views import deadlock
from taskyard.views.bots import fleet as read_fleet
from taskyard.views.visibility import Visibility
from taskyard.wire.explain import (
    Cause,
    Reasoned,
    WhyBot,
    WhyBots,
    WhyDifference,
    WhyNearest,
    WhyOther,
    WhyPrerequisite,
    WhySlice,
    WhyView,
)

_GRAPHS: Final = frozenset(kind.text for kind in GRAPH_KINDS)
#: How many tasks are named, and how many prerequisites of one of them are followed.
ANCESTORS_MAX: Final = 200


def ancestors(repo: Repo, task: int) -> list[int]:
    """Return the tasks that a task depends on, nearest first."""
    found: dict[int, None] = {}
    level = [task]
    while level and len(found) < ANCESTORS_MAX:
        edges = [edge for one in level for edge in repo.edges.page_into(one, -1, ANCESTORS_MAX)]
        fresh = [id for id in dict.fromkeys(edge.prerequisite for edge in edges) if id not in found]
        level = fresh[: ANCESTORS_MAX - len(found)]
        found |= dict.fromkeys(level)
    return list(found)


#: What the task of a launch is, by what was launched.
ROLES: Final[Mapping[str, Role]] = {
    str(DocumentKind.PROJECT): Role.PROJECT_UPDATE,
    SOURCE: Role.INVENTORY_UPDATE,
    str(DocumentKind.JOB_TEMPLATE): Role.JOB,
    str(DocumentKind.SYSTEM_JOB_TEMPLATE): Role.SYSTEM_JOB,
    str(DocumentKind.WORKFLOW_TEMPLATE): Role.WORKFLOW,
    AD_HOC: Role.AD_HOC,
}
#: How many prerequisites that hold a task are read.
EDGES_MAX: Final = 100
#: How many tasks ahead of another are counted.
AHEAD_MAX: Final = 10_000
#: How many cancel requests are read to find who canceled tasks.
CANCELS_MAX: Final = 500
#: For how many tasks it is found who canceled them together with others.
TRACED_MAX: Final = 10
#: The name of a bot that the caller may not see.
UNSEEN_BOT: Final = BotId("a bot that you may not see")

#: The reasons of ends that an attempt caused.
_BY_ATTEMPT: Final = frozenset(
    {
        Reason.DONE,
        Reason.EXIT_CODE,
        Reason.SIGNALED,
        Reason.TIMED_OUT,
        Reason.SILENT,
        Reason.BAD_RESULT,
        Reason.BOT_LOST,
        Reason.POISON,
        Reason.MISSING,
        Reason.BOT_FAILED,
        Reason.DENIED,
        Reason.GRAPH_FAILED,
        Reason.UPDATE_FAILED,
    }
)
#: Of these, what has lost bots.
_LOST: Final = frozenset({Reason.BOT_LOST, Reason.POISON})


#: A prerequisite, the end that is required of it, and its state.
_Edge: TypeAlias = tuple[int, On, State]


class ExplainFacts:
    """What `core.explain` needs to know about tasks, read for one question. Shared facts are read once.

    With `brief`, for many tasks and their reasons alone, it leaves out prerequisites, the tasks ahead in the queue, the
    use of limits, and subgraphs.
    """

    def __init__(self, repo: Repo, now: Millis, visibility: Visibility, brief: bool = False) -> None:
        self.repo = repo
        self.now = now
        self.brief = brief
        self._visibility = visibility
        self._labels: dict[int, str] = {}
        self._queues: dict[int, tuple[str, Dimensions]] = {}
        self._bots: dict[tuple[Dimensions, str | None], Bots] = {}
        self._graph_cancelers: dict[int, str | None] = {}  # who canceled each graph; None if it is not canceled

    def situations(self, records: Sequence[TaskRecord]) -> list[Situation]:
        """Return what is known about tasks, except for why the last admission pass held them."""
        edges = {one.id: [] if self.brief else self._edges(one) for one in records}
        near = {id: state for found in edges.values() for id, _, state in found}
        self._learn_labels([*edges, *near])
        self._learn_queues({one.queue for one in records})
        over = self.repo.tasks.read([id for id, state in near.items() if state in ENDED])
        ended = {one.id: one for one in (*over, *records) if one.state in ENDED}
        endings = self._endings(list(ended.values()))
        return [self._situation(one, edges[one.id], endings) for one in records]

    def queue(self, id: int) -> tuple[str, Dimensions]:
        """Return the pool and the dimensions of a queue."""
        self._learn_queues({id})
        return self._queues[id]

    def other(self, task: int) -> Other | None:
        """Describe another task, if it exists; only by its state if the caller may not see it."""
        found = self.repo.tasks.read([task])
        if not found or not self._visibility.graph(found[0].graph):
            return Other(found[0].state) if found else None
        self._learn_labels([task])
        return Other(found[0].state, task_id(task), self._labels[task], text_of(Key(found[0].graph)))

    def rule(self, task: TaskRecord, key: str, holder: int | None) -> str:
        """Say which rule about launches a mutex is about, if both tasks are launched."""
        by = self.repo.tasks.read([] if holder is None else [holder])
        launches = self.repo.launches.of({one.graph for one in (task, *by)})
        roles = [ROLES.get(launches[one.graph].kind) for one in (task, *by) if one.graph in launches]
        if len(roles) < len((task, holder)) or roles[0] is None or roles[1] is None:
            return ""
        return rule_words(key, roles[0], roles[1])

    @cached_property
    def fleet(self) -> tuple[tuple[BotFacts, ...], bool]:
        """The bots, up to a limit, and whether these are all."""
        return read_fleet(self.repo)

    def bots(self, dimensions: Dimensions, lost_by: str | None = None) -> Bots:
        """Return which bots match dimensions; bots that the caller may not see count, without a name.

        `lost_by` is the bot that lost the task: it leaves the task to other bots, if there are any.
        """
        known = self._bots.get((dimensions, lost_by))
        if known is None:
            seen = [bot for one in self.fleet[0] if (bot := self._seen(one, dimensions)) is not None]
            known = explain.bots(dimensions, seen, self._leaves(dimensions, lost_by))
            known = self._bots[dimensions, lost_by] = known if self.fleet[1] else replace(known, whole=False)
        return known

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
            bots=self.bots(dimensions, task.avoid_bot) if queued and not own else None,
            own=own,
            external=self._external_pool(dimensions) if queued or is_external(task.bot) else "",
            assigned=task.reason == Reason.ASSIGNED,
            ahead=self._ahead(task) if queued and not self.brief else Ahead(),
            slices=_slices(task),
            again=task.life.attempt > task.life.began_after,
            ending_asked=self._graph_canceler(task.graph),
            attempt=task.life.attempt,
            bot=_bot(task.bot),
            inside=self._subgraph(task),
            other=self._update(task),
            until=None if task.lease_until_ms is None else given_again_at(Millis(task.lease_until_ms)),
            since=Millis(task.moved_ms),
            ending=endings.get(task.id),
        )

    def _external_pool(self, dimensions: Dimensions) -> str:
        """Return the pool of a task if it is external."""
        pool = pool_of(dimensions) or ""
        return pool if pool in self._external_pools else ""

    @cached_property
    def _external_pools(self) -> frozenset[str]:
        return frozenset(pool.name for pool in self.repo.admission.pools() if pool.external)

    def _edges(self, task: TaskRecord) -> list[_Edge]:
        states = hangs_on(task.state, task.reason)
        found = self.repo.read.prerequisites(task.id, states, EDGES_MAX) if states else []
        return [one for one in found if says_no(task.state, known(one[1], one[2]))]

    def _prerequisite(self, edge: _Edge, endings: dict[int, Ending]) -> Prerequisite:
        id, on, state = edge
        return Prerequisite(self._labels[id], state, known(on, state), on, task_id(id), endings.get(id))

    def _endings(self, ended: Sequence[TaskRecord]) -> dict[int, Ending]:
        attempts = self.repo.read.ended_attempts([one.id for one in ended if Reason(one.reason) in _BY_ATTEMPT])
        actors = self._actors([one for one in ended if one.reason == Reason.ASKED])
        notes = self.repo.read.audit_notes([one.id for one in ended if one.reason == Reason.NO_BOT], NO_BOT)
        found: dict[int, Ending] = {}
        for one in ended:
            last, reason, actor = attempts.get(one.id), Reason(one.reason), actors.get(one.id)
            if last is None:
                found[one.id] = Ending(reason, actor=actor, note=notes.get(one.id, ""))
            else:
                note = self._bots_lost(one) if reason in _LOST else self._update_says(one, reason)
                found[one.id] = Ending(reason, last.number, _bot(last.bot), last.exit_code, actor, note)
        return found

    def _update_says(self, task: TaskRecord, reason: Reason) -> str:
        """Name the update that failed a link."""
        link = self.repo.launches.links([task.id]).get(task.id) if reason is Reason.UPDATE_FAILED else None
        return "" if link is None else f"task {task_id(link.update)} of graph {text_of(Key(link.update_graph))}"

    def _bots_lost(self, task: TaskRecord) -> str:
        """Name the bots with which a task was lost in its last round, if there are several."""
        lost = [] if self.brief else self.repo.attempts.lost_by(task.id, task.life.round, ())
        return names(lost) if len(lost) > 1 else ""

    def _actors(self, canceled: Sequence[TaskRecord]) -> dict[int, str]:
        """Return who last canceled each of some tasks, or its graph."""
        subjects = {id for one in canceled for id in (one.id, one.graph)}
        latest: dict[int, str] = {}
        for subject, actor, _ in self.repo.read.last_requests(subjects, CANCEL, CANCELS_MAX):
            latest.setdefault(subject, actor)
        asked = {one.id: latest.get(one.id) or latest.get(one.graph) for one in canceled}
        ends = [one for one in canceled if not asked[one.id]][:TRACED_MAX]
        asked |= {one.id: self._canceler_of_prerequisite(one) for one in ends}
        return {id: actor for id, actor in asked.items() if actor}

    def _canceler_of_prerequisite(self, task: TaskRecord) -> str | None:
        """Return who canceled a task together with one that it depends on."""
        requests = self.repo.read.last_requests(ancestors(self.repo, task.id), CANCEL, CANCELS_MAX)
        return next((actor for _, actor, at_ms in requests if at_ms <= task.moved_ms), None)

    def _graph_canceler(self, graph: int) -> str | None:
        if graph not in self._graph_cancelers:
            found = self.repo.graphs.peek([graph])
            is_canceled = bool(found) and found[0].canceled_ms is not None
            requests = self.repo.read.last_requests([graph], CANCEL, 1) if is_canceled else []
            self._graph_cancelers[graph] = next((actor for _, actor, _ in requests), "") if is_canceled else None
        return self._graph_cancelers[graph]

    def _subgraph(self, task: TaskRecord) -> str | None:
        """Return the subgraph that the current attempt of a task runs."""
        if self.brief or task.kind not in _GRAPHS or task.state not in LEASED:
            return None
        found = self.repo.graphs.subgraphs([task.id]).get((task.id, task.life.attempt))
        return None if found is None else text_of(Key(found))

    def _update(self, task: TaskRecord) -> Other | None:
        """Return the update for which a link stands that runs."""
        if self.brief or task.kind != Kind.LINK.text or task.state not in LEASED:
            return None
        link = self.repo.launches.links([task.id]).get(task.id)
        return None if link is None else self.other(link.update)

    def _ahead(self, task: TaskRecord) -> Ahead:
        turn = QueuePosition(task.priority, task.created_ms, task.id)
        count = self.repo.read.count_ahead(task.queue, turn, AHEAD_MAX)
        return Ahead(count, whole=count < AHEAD_MAX)

    def _leaves(self, dimensions: Dimensions, lost_by: str | None) -> BotId | None:
        if lost_by is None or not fleet.served_elsewhere(dimensions, BotId(lost_by), self.fleet[0]):
            return None
        return BotId(lost_by)

    def _seen(self, bot: BotFacts, dimensions: Dimensions) -> BotFacts | None:
        if self._visibility.bots_of(dict(bot.dimensions).get(POOL, ())):
            return bot
        return struct_replace(bot, id=UNSEEN_BOT) if matches(dimensions, bot.dimensions) else None

    def _learn_labels(self, tasks: Iterable[int]) -> None:
        self._labels |= self.repo.read.labels([id for id in tasks if id not in self._labels])

    def _learn_queues(self, queues: Iterable[int]) -> None:
        self._queues |= self.repo.read.queues([id for id in queues if id not in self._queues])


def _unmet(task: TaskRecord) -> int:
    """Count the edges that keep a task from running, by the counts of its row."""
    edges = task.edges
    counts = {EdgeState.AWAITED: edges.awaited, EdgeState.BROKEN: edges.broken, EdgeState.IMPOSSIBLE: edges.impossible}
    return sum(count for edge, count in counts.items() if says_no(task.state, edge))


def _slices(task: TaskRecord) -> SliceWait:
    return SliceWait(task.life.slice_index + 1, len(task.rules.slices), expires_at(task.life, task.rules))


def _bot(name: str | None) -> BotId | None:
    return None if name in (None, SERVER.bot) else BotId(str(name))


# Why the last admission pass held tasks, with current figures. The rules are those of `core.admission`.

_ADMISSIBLE: Final = sources(Signal.ADMIT)


def with_holds(facts: ExplainFacts, records: Sequence[TaskRecord], known: Sequence[Situation]) -> list[Situation]:
    """Add why the last admission pass held tasks, as far as it is still true.

    A mutex that was released since, or a pool that has room again, is for the next pass to judge: it adds nothing.
    """
    pending = {one.id for one in records if one.state in _ADMISSIBLE}
    holds = facts.repo.admission.holds_of(pending)
    shared = _SharedFacts(facts, holds) if facts.brief else None
    followers = {one.id for one in records if one.id in pending and one.reason == Reason.DUPLICATE_OF}
    leaders = facts.repo.reuse.leaders(followers)
    return [
        _with_leader(facts, record, one, leaders.get(record.id))
        if record.id in followers
        else _with_hold(facts, record, one, holds.get(record.id), shared)
        if record.id in pending
        else one
        for record, one in zip(records, known, strict=True)
    ]


class _SharedFacts:
    """What many holds have in shared, read once, to tell which of them are still true."""

    def __init__(self, facts: ExplainFacts, holds: Mapping[int, HoldRow]) -> None:
        self._facts = facts
        by = {one.by for one in holds.values() if one.by is not None}
        self._open = {one.id for one in facts.repo.tasks.read(by) if one.state not in ENDED} if by else set()
        short = [id for id, one in holds.items() if one.reason is Reason.LIMIT]
        self._needs = facts.repo.admission.limits_of(short) if short else {}
        self._room: dict[str, tuple[int, int]] = {}
        self._pools: dict[str, tuple[int | None, int]] = {}

    def still_holds(self, task: TaskRecord, hold: HoldRow) -> bool:
        """Whether a hold is still true, by the same conditions as the full answer."""
        match hold.reason:
            case Reason.MUTEX | Reason.RESERVED:
                return hold.by in self._open
            case Reason.LIMIT:
                return not self._has_room(hold.name or "", dict(self._needs.get(task.id, ())))
            case Reason.CAPACITY:
                total, used = self._pool(hold.name or "")
                return not carries(total, used, task.weight)
            case Reason.NO_BOT:
                return not fleet.served(self._facts.queue(task.queue)[1], self._facts.fleet[0])
            case Reason.NO_SECRET | Reason.NO_SECRET_KEY:
                return _still_lacks(self._facts, task, hold)
            case _:
                return False

    def _has_room(self, name: str, needs: Mapping[str, int]) -> bool:
        if name not in self._room:
            used = self._facts.repo.read.limit_use(name, HOLDING)
            self._room[name] = used, self._facts.repo.admission.named_limits().get(name, 0)
        used, total = self._room[name]
        return used + needs.get(name, 0) <= total

    def _pool(self, name: str) -> tuple[int | None, int]:
        if name not in self._pools:
            self._pools[name] = capacity(self._facts, name), self._facts.repo.read.pool_use(name, HOLDING)
        return self._pools[name]


def _with_hold(
    facts: ExplainFacts, task: TaskRecord, known: Situation, hold: HoldRow | None, shared: _SharedFacts | None
) -> Situation:
    begins = task.life.not_before_ms
    if begins is not None and begins > facts.now:
        return replace(known, held=Held(task_id(task.id), Reason.NOT_BEFORE, until=begins))
    if hold is None or not task.needs_admission:
        return known
    return _in_full(facts, task, known, hold) if shared is None else _in_brief(shared, task, known, hold)


def _with_leader(facts: ExplainFacts, task: TaskRecord, known: Situation, leader: int | None) -> Situation:
    """Add the equal task that is under way; None if it has just ended."""
    held = Held(task_id(task.id), Reason.DUPLICATE_OF, since=Millis(task.moved_ms))
    return replace(known, held=held, other=None if facts.brief or leader is None else facts.other(leader))


def _in_brief(shared: _SharedFacts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    if not shared.still_holds(task, hold):
        return known
    return replace(known, held=Held(task_id(task.id), hold.reason, hold.name, since=hold.since_ms))


def _in_full(facts: ExplainFacts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    match hold.reason:
        case Reason.MUTEX | Reason.RESERVED:
            return _with_other_task(facts, task, known, hold)
        case Reason.LIMIT:
            return _with_limit(facts, task, known, hold)
        case Reason.CAPACITY:
            return _with_capacity(facts, task, known, hold)
        case Reason.NO_BOT:
            return _without_bot(facts, task, known)
        case Reason.NO_SECRET | Reason.NO_SECRET_KEY if _still_lacks(facts, task, hold):
            return replace(known, held=Held(task_id(task.id), hold.reason, hold.name))
        case _:
            return known


def _still_lacks(facts: ExplainFacts, task: TaskRecord, hold: HoldRow) -> bool:
    """Tell whether the secret that a task lacked is still not there. Which keys a server has is not known here."""
    return hold.reason is Reason.NO_SECRET_KEY or facts.repo.secrets.lacks_any(task.id, task.life.slice_index)


def _with_other_task(facts: ExplainFacts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    other = None if hold.by is None else facts.other(hold.by)
    if other is None or other.state in ENDED:
        return known
    if hold.reason in FOR_CAPACITY:
        return _with_place(facts, task, replace(known, other=other), hold)
    since, key = hold.mutex_since_ms, hold.name or ""
    at = None if since is None else stakes_at(facts.repo.admission.stake_after(), key, since)
    before, looked = facts.repo.read.place_in_line(key, (Reason.MUTEX,), _position(task), AHEAD_MAX)
    held = Held(
        task_id(task.id), hold.reason, key, other.id, hold.since_ms, place=before + 1, mutex_since=since, stakes_at=at
    )
    ahead = Ahead(before, whole=looked < AHEAD_MAX)
    return replace(known, held=held, other=other, ahead=ahead, rule=facts.rule(task, key, hold.by))


def _with_limit(facts: ExplainFacts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    name = hold.name or ""
    need = dict(facts.repo.admission.limits_of([task.id]).get(task.id, ())).get(name, 0)
    used, total = facts.repo.read.limit_use(name, HOLDING), facts.repo.admission.named_limits().get(name, 0)
    if used + need <= total:
        return known
    return replace(known, held=Held(task_id(task.id), hold.reason, name, used=used, total=total, need=need))


def _with_capacity(facts: ExplainFacts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    found = _with_place(facts, task, known, hold)
    assert found.held is not None, "a task in the line is held"
    if carries(found.held.total, found.held.used or 0, task.weight):
        return known
    return found


def _with_place(facts: ExplainFacts, task: TaskRecord, known: Situation, hold: HoldRow) -> Situation:
    pool = hold.name or ""
    before, looked = facts.repo.read.place_in_line(pool, FOR_CAPACITY, _position(task), AHEAD_MAX)
    held = Held(
        task_id(task.id),
        hold.reason,
        pool,
        since=hold.since_ms,
        place=before + 1,
        used=facts.repo.read.pool_use(pool, HOLDING),
        total=capacity(facts, pool),
        need=task.weight,
    )
    return replace(known, held=held, ahead=Ahead(before, whole=looked < AHEAD_MAX))


def _without_bot(facts: ExplainFacts, task: TaskRecord, known: Situation) -> Situation:
    _, dimensions = facts.queue(task.queue)
    if fleet.served(dimensions, facts.fleet[0]):
        return known
    held = Held(task_id(task.id), Reason.NO_BOT)
    return replace(known, held=held, bots=facts.bots(dimensions))


def capacity(facts: ExplainFacts, name: str) -> int | None:
    """Return how much a pool carries at once; None if it is unlimited."""
    for pool in facts.repo.admission.pools():
        if pool.name == name:
            if not pool.from_bots:
                return pool.capacity
            return fleet.capacity(name, facts.fleet[0], pool.unit, pool.adjustment)
    return None


def _position(task: TaskRecord) -> QueuePosition:
    return QueuePosition(task.priority, task.created_ms, task.id)


def task_id(key: int) -> TaskId:
    """Return the id of a task as admission knows it."""
    return TaskId(text_of(Key(key)))


# Answers of `core.explain` as API messages.


def reason_view(record: TaskRecord, answer: Why, now: Millis) -> Reasoned:
    """Show why one task does not run."""
    held, ending = answer.held, answer.ending
    is_mutex = held is not None and held.reason is Reason.MUTEX
    return Reasoned(
        task=text_of(Key(record.id)),
        graph_id=text_of(Key(record.graph)),
        label=answer.label,
        state=answer.state.text,
        reason=answer.reason.text,
        guard=None if answer.guard is None else answer.guard.value,
        sentence=sentence(answer, now),
        since_ms=answer.since,
        prerequisites=[_prerequisite(one) for one in answer.prerequisites],
        unmet=answer.unmet,
        name=held.name if held else None,
        other=None if answer.other is None else other_view(answer.other),
        other_since_ms=held.since if held and is_mutex else None,
        waits_since_ms=None if is_mutex or held is None else held.since,
        mutex_since_ms=held.mutex_since if held else None,
        stakes_ms=held.stakes_at if held else None,
        used=held.used if held else None,
        total=held.total if held else None,
        need=held.need if held else None,
        place=held.place if held else None,
        until_ms=held.until if held else answer.until,
        dimensions=dimensions_view(answer.dimensions),
        bots=None if answer.bots is None else bots_view(answer.bots),
        ahead=None if answer.guard in (None, Guard.GRAPH) else answer.ahead.count,
        ahead_whole=answer.ahead.whole,
        slice=None if answer.slices is None else _slice(answer.slices),
        attempt=answer.attempt or None,
        bot=answer.bot,
        graph_inside=answer.inside,
        exit_code=None if ending is None else ending.exit_code,
        actor=answer.actor or None,
    )


def bots_view(bots: Bots) -> WhyBots:
    """Show how bots match."""
    near = bots.nearest
    return WhyBots(
        known=bots.known,
        whole=bots.whole,
        matching=bots.matching,
        standing={standing.value: count for standing, count in bots.standing},
        named=[WhyBot(one.bot, one.standing.value, one.note, one.last_seen_ms) for one in bots.named],
        absent=dimensions_view(bots.absent),
        nearest=None if near is None else WhyNearest(near.bot, [_difference(one) for one in near.differs]),
        meant=dict(bots.meant),
        kept=list(bots.kept),
    )


def _difference(one: Difference) -> WhyDifference:
    ((key, wanted),) = without_marks(((one.key, one.wanted),))
    return WhyDifference(key, list(wanted), list(one.has))


def dimensions_view(dimensions: Dimensions) -> dict[str, list[str]]:
    """Show dimensions."""
    return {key: list(values) for key, values in without_marks(dimensions)}


def _prerequisite(one: Prerequisite) -> WhyPrerequisite:
    ended = None if one.ending is None else ending_says(one.ending)
    return WhyPrerequisite(one.id or "", one.label, one.state.text, one.on.text, ended)


def other_view(other: Other) -> WhyOther:
    """Show another task that is in the way."""
    return WhyOther(other.id, other.label, other.graph, other.state.text)


def _slice(one: SliceWait) -> WhySlice:
    return WhySlice(one.number, one.count, one.until)


#: How many tasks are looked at for one answer, including the one that was asked about.
LOOKED_MAX: Final = 100
#: First the causes that need a person, then those that take longest.
_BY_URGENCY: Final = (
    Reason.NO_BOT,
    Reason.BOTS_AWAY,
    Reason.APPROVAL,
    Reason.MUTEX,
    Reason.LIMIT,
    Reason.CAPACITY,
    Reason.RESERVED,
    Reason.NOT_BEFORE,
    Reason.BOTS_BUSY,
    Reason.IN_LINE,
    Reason.UNSEEN,
)


@dataclass(frozen=True, slots=True)
class ExplainedTask:
    """A task on the way, and why it does not run."""

    record: TaskRecord
    why: Why
    depth: int
    needed_by: int

    @property
    def is_root(self) -> bool:
        """Whether no prerequisite holds it."""
        return not self.why.prerequisites


def explain_task(repo: Repo, record: TaskRecord, now: Millis, visibility: Visibility) -> WhyView:
    """Return why a task does not run."""
    found, more = _walk(ExplainFacts(repo, now, visibility), record)
    roots = sorted((one for one in found if one.is_root), key=lambda one: urgency(one.why))
    known = deadlock.of_task(repo, record, visibility) if record.state in ACTIVE else None
    return WhyView(
        sentence=_summary(found[0], roots, now) + ("" if known is None else f"; {known.sentence}"),
        why=reason_view(found[0].record, found[0].why, now),
        causes=[_cause(one, now) for one in found[1:]],
        roots=sum(one.depth > 0 for one in roots),
        more=more,
        deadlock=known,
    )


def answers(facts: ExplainFacts, records: Sequence[TaskRecord]) -> list[Why]:
    """Return why each of some tasks does not run, without following prerequisites."""
    known = with_holds(facts, records, facts.situations(records))
    return [why(one) for one in known]


def urgency(answer: Why) -> int:
    """Return the rank of an answer among others: what needs a person comes first."""
    if answer.state in UNSUCCESSFUL:
        return -1
    return _BY_URGENCY.index(answer.reason) if answer.reason in _BY_URGENCY else len(_BY_URGENCY)


def _walk(facts: ExplainFacts, record: TaskRecord) -> tuple[list[ExplainedTask], int]:
    """Follow prerequisites level by level; return the tasks, and how many prerequisites were not followed."""
    found: list[ExplainedTask] = []
    needed_by = {record.id: record.id}
    level, depth, more = [record], 0, 0
    while level:
        reached = [
            ExplainedTask(one, answer, depth, needed_by[one.id])
            for one, answer in zip(level, answers(facts, level), strict=True)
        ]
        found += reached
        fresh: list[int] = []
        for one in reached:
            ids = [int(key_of(edge.id)) for edge in one.why.prerequisites if edge.id]
            more += one.why.unmet - len(ids)
            for id in ids:
                if id not in needed_by:
                    needed_by[id] = one.record.id
                    fresh.append(id)
        room = LOOKED_MAX - len(found)
        more += max(0, len(fresh) - room)
        level, depth = facts.repo.tasks.read(fresh[:room]), depth + 1
    return found, more


def _summary(top: ExplainedTask, roots: Sequence[ExplainedTask], now: Millis) -> str:
    """Say it in one sentence, with the most urgent root cause."""
    text = sentence(top.why, now)
    below = [one for one in roots if one.depth > 0]
    if not below or (below[0].depth == 1 and below[0].why.ending is not None):
        return text  # it says already how the prerequisite ended
    root = below[0]
    where = "at the root, " if root.depth > 1 else ""
    others = len(below) - 1
    more = f" (and {others} more root cause{'s' * (others > 1)})" if others else ""
    return f"{text}; {where}{sentence(root.why, now)}{more}"


def _cause(one: ExplainedTask, now: Millis) -> Cause:
    return Cause(one.depth, text_of(Key(one.needed_by)), one.is_root, reason_view(one.record, one.why, now))
