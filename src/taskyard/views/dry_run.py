"""What would happen to a graph if it were submitted now: which tasks start, which wait, and which no bot can run.

It is a forecast by the same rules that run later: `admission.decide` over the stored tasks and the new ones, then the
bots as they are. Nothing is stored.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskyard.core import attempt_policy, fleet
from taskyard.core.admission.rules import FOR_CAPACITY, Contender, Facts, Held, Pool, decide
from taskyard.core.explain import Ahead, Other, Situation, SliceWait, Standing, Why, why
from taskyard.core.explain_text import because, counted, names
from taskyard.core.graph.model import GraphDefinition, Task
from taskyard.core.graph.payload import SERVER_KINDS
from taskyard.core.ids import key_of
from taskyard.core.matching import Dimensions, matches, pool_of
from taskyard.core.resources import ONE_SLOT, Resources, taken
from taskyard.core.states import ENDED, HOLDING, BotId, Kind, Millis, Reason, Signal, State, TaskId, sources
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.store.connection import Repo
from taskyard.store.repo.admission import ContenderRow
from taskyard.views import explain
from taskyard.views.explain import ExplainFacts, bots_view, capacity, dimensions_view, other_view, task_id
from taskyard.views.visibility import Visibility
from taskyard.wire.explain import AFTER, NEVER, NOW, VERDICTS, WAITS, DryRun, DryTask

# Admission needs all tasks that hold something. A limited number of pending tasks is looked at, and the forecast says
# whether these were all.

#: How many stored pending tasks are taken into account.
PENDING_MAX: Final = 2_000
#: How many holders one query reads.
READ_MAX: Final = 2_000

_ADMISSIBLE: Final = sources(Signal.ADMIT)
#: Why a stored task is held that lacks a secret.
_LACKS: Final = frozenset({Reason.NO_SECRET, Reason.NO_SECRET_KEY})
#: The prefix of ids of new tasks: they sort after all stored ids, as the newest tasks do.
_NEW: Final = "new "


@dataclass(frozen=True, slots=True)
class AdmissionForecast:
    """What would hold the new tasks, by label; tasks that are not held would be admitted."""

    held: Mapping[str, Held] = field(default_factory=dict)
    whole: bool = True  # whether all pending tasks were taken into account
    labels: Mapping[TaskId, str] = field(default_factory=dict)  # of the new tasks
    admitted: frozenset[TaskId] = frozenset()

    def other(self, facts: explain.ExplainFacts, held: Held) -> Other | None:
        """Return the task that holds this one."""
        if held.by is None:
            return None
        if held.by in self.labels:
            return Other(State.WAITING if held.by in self.admitted else State.PENDING, label=self.labels[held.by])
        return facts.other(key_of(held.by))


def forecast_admission(
    facts: explain.ExplainFacts, tasks: Sequence[Task], wanted: Mapping[str, Dimensions]
) -> AdmissionForecast:
    """Return what would hold tasks without prerequisites; `wanted` has the dimensions of their first slices."""
    limits = {pool.name: capacity(facts, pool.name) for pool in facts.repo.admission.pools()}
    new = {_id(number): task for number, task in enumerate(tasks) if _may_be_held(task, wanted[task.label], limits)}
    if not new:
        return AdmissionForecast()
    admission, whole = _admission_facts(facts, limits)
    new_contenders = tuple(_contender(facts, id, task, wanted[task.label]) for id, task in new.items())
    decision = decide(struct_replace(admission, pending=(*admission.pending, *new_contenders)), facts.now)
    return AdmissionForecast(
        held={new[one.id].label: _without_times(one) for one in decision.held if one.id in new},
        whole=whole,
        labels={id: task.label for id, task in new.items()},
        admitted=frozenset(decision.admitted),
    )


def _may_be_held(task: Task, dimensions: Dimensions, limits: Mapping[str, int | None]) -> bool:
    limited = task.weight > 0 and limits.get(pool_of(dimensions)) is not None
    return bool(task.mutexes or task.limits or task.not_before) or limited


def _admission_facts(facts: explain.ExplainFacts, limits: Mapping[str, int | None]) -> tuple[Facts, bool]:
    """Read what an admission pass reads; return whether that is everything."""
    holding = [row for state in sorted(HOLDING) for row in _all(facts, state)]
    pending = [
        row for state in sorted(_ADMISSIBLE) for row in facts.repo.admission.contenders(state, 0, PENDING_MAX + 1)
    ]
    contenders = _contenders(facts, [*holding, *pending[:PENDING_MAX]])
    since = {task_id(row.id): row.moved_ms for row in holding}
    admission = Facts(
        pending=tuple(one for one in contenders if one.id not in since),
        holding=tuple(one.admitted(since[one.id]) for one in contenders if one.id in since),
        pools=tuple(Pool(name, total) for name, total in limits.items()),
        limits=facts.repo.admission.named_limits(),
        stake_after=facts.repo.admission.stake_after(),
    )
    return admission, len(pending) <= PENDING_MAX


def _all(facts: explain.ExplainFacts, state: State) -> Iterator[ContenderRow]:
    after = 0
    while page := facts.repo.admission.contenders(state, after, READ_MAX):
        yield from page
        after = page[-1].id


def _contenders(facts: explain.ExplainFacts, rows: Sequence[ContenderRow]) -> list[Contender]:
    ids = [row.id for row in rows]
    excluding = [row.id for row in rows if row.is_constrained]
    mutexes, demands = facts.repo.admission.mutexes_of(excluding), facts.repo.admission.limits_of(excluding)
    holds = facts.repo.admission.holds_of(ids)
    found = []
    for row in rows:
        pool, dimensions = facts.queue(row.queue)
        hold = holds.get(row.id)
        since = hold.since_ms if hold is not None and hold.reason in FOR_CAPACITY and hold.name == pool else None
        what = (mutexes.get(row.id, ()), demands.get(row.id, ()))
        served = not what[0] or row.queue == SERVER_QUEUE or _served(facts, dimensions)
        by_mutex = None if hold is None else hold.mutex_since_ms
        lacks = None if hold is None or hold.reason not in _LACKS else (hold.reason, hold.name or "")
        rest = (pool, row.weight, *what, row.not_before_ms, served, since, by_mutex, lacks)
        found.append(Contender(task_id(row.id), row.priority, row.created_ms, *rest))
    return found


def _contender(facts: explain.ExplainFacts, id: TaskId, task: Task, dimensions: Dimensions) -> Contender:
    begins = task.not_before.moment(facts.now) if task.not_before else None
    served = not task.mutexes or task.slices[0].kind in SERVER_KINDS or _served(facts, dimensions)
    what = (task.weight, task.mutexes, task.limits)
    return Contender(id, task.priority, facts.now, pool_of(dimensions), *what, begins, served)


def _served(facts: explain.ExplainFacts, dimensions: Dimensions) -> bool:
    return fleet.served(dimensions, facts.fleet[0])


def _without_times(held: Held) -> Held:
    """Remove since when a new task waits, because it does not wait yet."""
    return struct_replace(held, since=None if held.reason in FOR_CAPACITY else held.since, mutex_since=None)


def _id(number: int) -> TaskId:
    return TaskId(f"{_NEW}{number:09}")


#: How many tasks are shown; all of them are counted.
LISTED_MAX: Final = 1_000
#: How many prerequisites of a task are named.
AFTER_MAX: Final = 20

#: The words for each verdict, about one task and about several.
_OF_ONE: Final = {NEVER: "cannot run", WAITS: "would wait", NOW: "would run at once"}
_OF_ALL: Final = {
    NEVER: "can run on no bot", WAITS: "would wait", NOW: "would run at once", AFTER: "would wait for others of it",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Choice:
    """The slice that a task would begin with, and whether any bot exists for it."""

    number: int  # from 1
    dimensions: Dimensions
    own: bool = False  # the server runs it itself
    never: bool = False


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What would happen to a task, and how many tasks of this graph come before it in its queue."""

    task: Task
    verdict: str
    before: int = 0


def dry_run(repo: Repo, graph: GraphDefinition, now: Millis, visibility: Visibility) -> DryRun:
    """Return what would happen to a graph."""
    graph_forecast = _GraphForecast(ExplainFacts(repo, now, visibility), graph)
    outcomes = [graph_forecast.outcome(task) for task in graph.tasks.values()]
    counts = Counter(one.verdict for one in outcomes)
    listed = sorted(outcomes, key=lambda one: one.verdict != NEVER)[:LISTED_MAX]
    return DryRun(
        name=graph.name,
        tasks=len(outcomes),
        sentence=_sentence(counts),
        counts={verdict: counts[verdict] for verdict in VERDICTS},
        items=[graph_forecast.view(one) for one in listed],
        more=len(outcomes) - len(listed),
        whole=graph_forecast.forecast.whole,
    )


class _GraphForecast:
    """One forecast of a graph; what its tasks share is computed once."""

    def __init__(self, facts: ExplainFacts, graph: GraphDefinition) -> None:
        self._facts = facts
        self._chosen: dict[tuple[tuple[Dimensions, bool, Kind], ...], _Choice] = {}
        self._before: Counter[Dimensions] = Counter()  # tasks of this graph that wait in a queue
        self._bots = {bot.id: bot for bot in facts.fleet[0]}
        self._idle = {bot.id: fleet.idle_slots(bot) for bot in facts.fleet[0]}
        self._free_bots: dict[Dimensions, deque[BotId]] = {}
        self._choices: Mapping[str, _Choice] = {label: self._choice(task) for label, task in graph.tasks.items()}
        roots = [task for label, task in graph.tasks.items() if not task.requires and not self._choices[label].never]
        wanted = {task.label: self._choices[task.label].dimensions for task in roots}
        self.forecast: AdmissionForecast = forecast_admission(facts, roots, wanted)

    def outcome(self, task: Task) -> _Outcome:
        """Return what would happen to a task after those that were asked about before."""
        choice = self._choices[task.label]
        if choice.never:
            return _Outcome(task, NEVER)
        if task.requires:
            return _Outcome(task, AFTER)
        if task.label in self.forecast.held:
            return _Outcome(task, WAITS)
        before = self._before[choice.dimensions]
        self._before[choice.dimensions] += 1
        return _Outcome(task, NOW if choice.own or self._take(choice.dimensions) else WAITS, before)

    def view(self, outcome: _Outcome) -> DryTask:
        """Return the view of a task."""
        if outcome.verdict == AFTER:
            return _behind(outcome.task, self._choices[outcome.task.label])
        return self._view(outcome, self._why(outcome))

    # Bots.

    def _choice(self, task: Task) -> _Choice:
        """Choose the slice that a task would begin with; tasks with equal slices share the choice."""
        asked = tuple((one.dimensions, one.wait_for_capacity, one.kind) for one in task.slices)
        known = self._chosen.get(asked)
        if known is None:
            known = self._chosen[asked] = self._choose(task)
        return known

    def _choose(self, task: Task) -> _Choice:
        """Choose as a release would."""
        if task.slices[0].kind in SERVER_KINDS:
            return _Choice(1, (), own=True)
        rules = attempt_policy.rules_of(task, self._facts.now)
        life = attempt_policy.born(rules).at(State.PENDING)
        capacity = [fleet.capacity_seen(one.dimensions, self._facts.fleet[0]) for one in task.slices]
        ruling = attempt_policy.choose_slice(life, rules, capacity)
        index = ruling.life_after.slice_index
        never = ruling.target in ENDED or not any(self._exists(one.dimensions) for one in task.slices)
        return _Choice(index + 1, task.slices[index].dimensions, never=never)

    def _exists(self, dimensions: Dimensions) -> bool:
        """Whether a bot exists that matches; bots that have said goodbye do not count."""
        found = self._facts.bots(dimensions)
        return found.matching > found.count(Standing.GONE)

    def _take(self, dimensions: Dimensions) -> bool:
        """Take what a task needs of a bot, if the tasks before it have left that."""
        takes = taken(dimensions)
        return self._take_slot(dimensions) if takes == ONE_SLOT else self._take_resources(dimensions, takes)

    def _take_resources(self, dimensions: Dimensions, takes: Resources) -> bool:
        for id, bot in self._bots.items():
            now = struct_replace(bot, busy=bot.slots - bot.taken.slots - self._idle[id])
            if matches(dimensions, bot.dimensions) and fleet.has_room(now, dimensions):
                more = struct_replace(takes, slots=takes.slots - 1)
                self._bots[id] = struct_replace(bot, taken=bot.taken + more)
                self._idle[id] -= takes.slots
                return True
        return False

    def _take_slot(self, dimensions: Dimensions) -> bool:
        free_bots = self._free_bots.get(dimensions)
        if free_bots is None:
            free = (bot.id for bot in self._facts.fleet[0] if matches(dimensions, bot.dimensions))
            free_bots = self._free_bots[dimensions] = deque(free)
        while free_bots and not self._idle[free_bots[0]]:
            free_bots.popleft()
        if free_bots:
            self._idle[free_bots[0]] -= 1
        return bool(free_bots)

    # Answers.

    def _why(self, outcome: _Outcome) -> Why:
        task, choice, now = outcome.task, self._choices[outcome.task.label], self._facts.now
        held = None if choice.never else self.forecast.held.get(task.label)
        bots = None if choice.own else self._facts.bots(choice.dimensions)
        return why(
            Situation(
                task.label,
                State.WAITING if held is None else State.PENDING,
                held=held,
                other=None if held is None else self.forecast.other(self._facts, held),
                dimensions=choice.dimensions,
                bots=bots,
                own=choice.own,
                ahead=Ahead(outcome.before),
                slices=SliceWait(choice.number, len(task.slices)),
                since=now,
            )
        )

    def _view(self, outcome: _Outcome, answer: Why) -> DryTask:
        held = answer.held
        return DryTask(
            label=outcome.task.label,
            verdict=outcome.verdict,
            reason=answer.reason.text,
            sentence=f"{outcome.task.label} {_OF_ONE[outcome.verdict]}: {because(answer, self._facts.now)}",
            slice=self._choices[outcome.task.label].number,
            dimensions=dimensions_view(answer.dimensions),
            bots=None if answer.bots is None else bots_view(answer.bots),
            name=held.name if held else None,
            other=None if answer.other is None else other_view(answer.other),
            used=held.used if held else None,
            total=held.total if held else None,
            need=held.need if held else None,
            place=held.place if held else None,
            until_ms=held.until if held else None,
        )


def _behind(task: Task, choice: _Choice) -> DryTask:
    labels = list(dict.fromkeys(edge.task for edge in task.requires))
    return DryTask(
        label=task.label,
        verdict=AFTER,
        reason=Reason.PREREQUISITE.text,
        sentence=f"{task.label} would wait: it comes after {names(labels)}",
        after=labels[:AFTER_MAX],
        slice=choice.number,
        dimensions=dimensions_view(choice.dimensions),
    )


def _sentence(counts: Mapping[str, int]) -> str:
    parts = [f"{counted(counts[one], 'task')} {_OF_ALL[one]}" for one in VERDICTS if counts.get(one)]
    return f"{', '.join(parts)}; nothing was stored"
