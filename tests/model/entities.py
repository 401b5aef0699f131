"""The bots, tasks and graphs of the model, and the rules that concern one of them alone.

Edges have no state: a waiting task looks at the states of its prerequisites.
"""

from dataclasses import dataclass, field

from taskyard.core.states import GraphState, Impossible, Join, On, Reason, Signal, State
from tests.model.requests import POOL, SliceSpec, TaskSpec

S, R = State, Reason

#: What the documentation promises, in milliseconds.
LEASE, GUARD, SILENT, OUTAGE, STAKE_AFTER = 60_000, 5_000, 65_000, 15_000, 60_000
#: How many losses of attempts that had not begun cost no retry, in one round.
SPARED = 2

BAD = {S.FAILED, S.ERROR, S.CANCELED}
ENDED = BAD | {S.SUCCESSFUL, S.SKIPPED}
LEASED = {S.RUNNING, S.STOPPING}
HOLDING = LEASED | {S.WAITING}
ACTIVE = HOLDING | {S.PENDING}


@dataclass
class Bot:
    """A bot, in its latest session."""

    name: str
    session: str
    pools: frozenset[str]
    seen_ms: int
    gone: bool = False  # it said goodbye
    missing: bool = False  # it was marked as missing

    @property
    def takes_work(self) -> bool:
        return not self.gone and not self.missing


@dataclass(eq=False)
class Task:
    """A task."""

    id: int
    graph: "Graph"
    spec: TaskSpec
    created_ms: int
    before: list[tuple["Task", On]] = field(default_factory=list)
    state: State = S.UNSCHEDULED
    reason: Reason = R.PREREQUISITE
    attempt: int = 0
    began_after: int = 0  # the latest attempt of the rounds before
    round: int = 1
    reruns: int = 0
    retries: int = 0
    spared: int = 0  # how many losses of this round cost no retry
    slice_index: int = 0
    waits_since: int | None = None
    mutex_since: int | None = None  # since when mutexes have held it, until it is admitted
    not_before: int | None = None
    bot: str | None = None
    avoid_bot: str | None = None
    until_ms: int | None = None
    said: Signal | None = None  # how its latest attempt ended
    ends: dict[int, Signal] = field(default_factory=dict)  # how each attempt ended
    handled_round: dict[int, int] = field(default_factory=dict)  # the rounds of those it handles in which it ran
    hidden: bool = False

    @property
    def slice(self) -> SliceSpec:
        return self.spec.slices[self.slice_index]

    @property
    def turn(self) -> tuple[int, int, int]:
        return self.spec.priority, self.created_ms, self.id

    @property
    def deadline(self) -> int | None:
        return None if self.spec.deadline_ms is None else self.created_ms + self.spec.deadline_ms

    @property
    def weight(self) -> int:
        return 0 if self.spec.noop else self.spec.weight

    @property
    def needs_admission(self) -> bool:
        return bool(self.spec.mutexes) or (self.weight > 0 and self.slice.pool == POOL)

    def past(self, now: int) -> bool:
        return self.deadline is not None and now >= self.deadline

    def fresh(self) -> None:
        """Begin a round with full budgets."""
        self.reruns = self.retries = self.spared = self.slice_index = 0
        self.waits_since = None
        ms = self.spec.not_before_ms
        self.not_before = None if ms is None else self.created_ms + ms


@dataclass(eq=False)
class Graph:
    """A graph."""

    id: int
    tasks: dict[str, Task] = field(default_factory=dict)
    canceled: bool = False

    @property
    def state(self) -> GraphState:
        tasks = [task for task in self.tasks.values() if not task.hidden]
        if self.canceled:
            return GraphState.CANCELING if any(task.state in ACTIVE for task in tasks) else GraphState.CANCELED
        if any(task.state in BAD and not self.is_or_may_be_handled(task) for task in tasks):
            return GraphState.BLOCKED
        if any(task.state in ACTIVE for task in tasks):
            return GraphState.RUNNING
        return GraphState.FINISHED if all(task.state in ENDED for task in tasks) else GraphState.BLOCKED

    def is_or_may_be_handled(self, failed: Task) -> bool:
        """Whether a failure was handled, or still may be."""
        handlers = [
            one for one in self.tasks.values() if any(t is failed and on is not On.SUCCESS for t, on in one.before)
        ]
        ran = any(one.state in ENDED and one.handled_round.get(failed.id) == failed.round for one in handlers)
        return ran or any(one.state in ACTIVE | {S.UNSCHEDULED} for one in handlers)


_POLICY = {Impossible.HOLD: S.BLOCKED, Impossible.FAIL: S.FAILED, Impossible.SKIP: S.SKIPPED}


def gate(task: Task) -> State:
    """The state that its prerequisites give a task; unscheduled while its condition can still come true."""
    met = mendable = never = awaited = 0
    for other, on in task.before:
        good, bad = other.state is S.SUCCESSFUL, other.state in BAD
        if other.state not in ENDED:
            awaited += 1
        elif (good and on is not On.FAILURE) or (bad and on is not On.SUCCESS):
            met += 1
        elif bad:
            mendable += 1
        else:
            never += 1
    if met == len(task.before) or (met and task.spec.join is Join.ANY):
        return S.PENDING
    hope = awaited if task.spec.join is Join.ANY else not (mendable or never)
    if hope:
        return S.UNSCHEDULED
    mends = mendable if task.spec.join is Join.ANY else not never
    return _POLICY[task.spec.policy] if mends else S.SKIPPED
