"""The rules of launches, checked on the history of what happened. Nothing here uses the rules of the system itself.

A task holds what it is about from its admission until its end. The history of a task are its events, in the order of
their times; a test lets the clock go on between any two transactions, so that one time is one transaction. The checker
walks through these times, and asks at each of them who may run beside whom, who is next, and what the pool can carry.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from taskyard.store.connection import Repo
from taskyard.store.repo.launches import LaunchRow, LinkRow
from taskyard.store.rows import TaskRecord

ALL = 1_000_000
HOLDS = {"waiting", "running", "stopping"}
AD_HOC = {"ad_hoc", "source", "job_template"}
ENDED = {"successful", "failed", "error", "canceled", "skipped"}


@dataclass
class Span:
    """Between two moments a task was pending, or held something; `until` is None while it does."""

    since: int
    until: int | None = None


@dataclass
class Work:
    """The task of a launch that does the work, and its history."""

    id: int
    kind: str  # job_template, project, source ...
    name: str
    graph: int
    created: int
    priority: int
    weight: int
    launch: LaunchRow
    state: str = "unscheduled"
    states: list[tuple[int, str]] = field(default_factory=list)  # and since when it was in each
    pending: list[Span] = field(default_factory=list)
    held: list[Span] = field(default_factory=list)

    @property
    def turn(self) -> tuple[int, int, int]:
        """The place in the one order of everything."""
        return (self.priority, self.created, self.id)

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.id}"


@dataclass
class Uses:
    """What a template uses, and whether several of its jobs run at once."""

    project: str | None = None
    inventory: str | None = None
    simultaneous: bool = False
    resources: frozenset[str] = frozenset()  # that a launch of it is linked to


@dataclass
class Rules:
    """What the checker knows of the documents and settings."""

    uses: Mapping[str, Uses]
    cache_ms: Mapping[str, int]
    capacity: int | None = None  # of the one pool
    stake_ms: int = 60_000  # of every mutex
    checks_stakes: bool = True


def read_work(repo: Repo, since: int) -> list[Work]:
    """Read the work of all launches whose graphs were created after a moment."""
    found = []
    for row in repo.launches.page("", "", None, -1, ALL):
        (graph,) = repo.graphs.peek([row.graph])
        if graph.created_ms <= since:
            continue
        labels = repo.tasks.with_labels(row.graph, ["job", "workflow", f"project:{row.name}", f"source:{row.name}"])
        label = {"project": f"project:{row.name}", "source": f"source:{row.name}"}.get(row.kind)
        id = labels[label] if label else next(iter(labels.values()))
        (task,) = repo.tasks.read([id])
        weight = 0 if row.kind == "workflow_template" else task.weight  # the server runs it, in no pool
        work = Work(id, row.kind, row.name, row.graph, task.created_ms, task.priority, weight, row)
        _follow(work, repo)
        found.append(work)
    return found


def _follow(work: Work, repo: Repo) -> None:
    for event in repo.events.of(work.id, 0, ALL):
        was, work.state = work.state, event.target
        for spans, states in ((work.pending, {"pending"}), (work.held, HOLDS)):
            if work.state in states and was not in states:
                spans.append(Span(event.at_ms))
            elif was in states and work.state not in states:
                spans[-1].until = event.at_ms
        work.states.append((event.at_ms, work.state))


def check(repo: Repo, since: int, rules: Rules, settled: Collection[int] = ()) -> list[Work]:
    """Check everything that happened after a moment, when all work has ended; return the work.

    At the moments `settled`, every pass has done all that it could.
    """
    found = read_work(repo, since)
    assert [str(work) for work in found if work.state not in ENDED] == [], "somebody waits for ever"
    faults = list(_Replay(found, rules).faults(settled))
    assert not faults, "\n".join(faults[:20])
    check_updates(repo, found, rules)
    return found


class _Replay:
    """Walks through the history: who holds, and who is pending, after each transaction."""

    def __init__(self, found: Iterable[Work], rules: Rules) -> None:
        self._rules = rules
        self._changes: dict[int, list[tuple[Work, str, bool]]] = defaultdict(list)
        for work in found:
            for what, spans in (("pending", work.pending), ("holds", work.held)):
                for span in (one for one in spans if one.since != one.until):
                    self._changes[span.since].append((work, what, True))
                    self._changes[_end(span)].append((work, what, False))
        self._holds: dict[int, Work] = {}
        self._pending: dict[int, Work] = {}
        self._clashed: dict[int, int] = {}  # since when somebody holds what a pending one needs
        self._now = 0

    def faults(self, settled: Collection[int]) -> Iterator[str]:
        """Walk; yield what was against the rules."""
        for now in sorted({*self._changes, *settled}):
            self._now = now
            admitted = self._apply(self._changes.get(now, []))
            yield from self._against_each_other(admitted)
            yield from self._too_much()
            yield from self._passed_over(admitted)
            for one in self._pending.values():
                if one.id not in self._clashed and self._clashes(one, self._holds.values()):
                    self._clashed[one.id] = self._now
            if now in settled:
                yield from (
                    f"{one} is left pending at {self._now}"
                    for one in self._pending.values()
                    if self._could_start(one, self._holds.values())
                )

    def _apply(self, changes: Iterable[tuple[Work, str, bool]]) -> list[Work]:
        """Apply one transaction; return what it admitted, in the order of everything."""
        admitted = []
        for work, what, begins in sorted(changes, key=lambda change: change[2]):
            now = {"pending": self._pending, "holds": self._holds}[what]
            if begins:
                now[work.id] = work
                admitted += [work] if what == "holds" else []
            else:
                del now[work.id]
                self._clashed.pop(work.id, None)
        return sorted(admitted, key=attrgetter("turn"))

    def _against_each_other(self, admitted: Iterable[Work]) -> Iterator[str]:
        for one in admitted:
            for other in self._holds.values():
                if other is not one:
                    yield from (f"{rule}: {one} and {other}" for rule in _broken(one, other, self._rules.uses))

    def _too_much(self) -> Iterator[str]:
        weights = [one.weight for one in self._holds.values() if one.weight]
        if self._rules.capacity is not None and sum(weights) > self._rules.capacity and len(weights) > 1:
            yield f"{weights} are more than {self._rules.capacity} at {self._now}"

    def _passed_over(self, admitted: list[Work]) -> Iterator[str]:
        """Find older work that could have been admitted instead, and younger work that passed one that had a stake."""
        before = [one for one in self._holds.values() if one not in admitted]
        for older in self._pending.values():
            ahead = [*before, *(one for one in admitted if one.turn < older.turn)]
            younger = [one for one in admitted if one.turn > older.turn]
            if younger and self._could_start(older, ahead):
                yield f"{older} was passed over for {younger[0]} at {self._now}"
            if (
                self._rules.checks_stakes
                and older.id in self._clashed
                and self._now - self._clashed[older.id] > self._rules.stake_ms + STAKE_SLACK_MS
            ):
                yield from (
                    f"{one} passed {older}, which had a stake" for one in younger if self._clashes(older, [one])
                )

    def _could_start(self, one: Work, ahead: Iterable[Work]) -> bool:
        """Whether nothing stands against one that is pending: no holder, no stake of an older one, no full pool."""
        holders = list(ahead)
        if self._clashes(one, holders) or not self._fits(one, holders):
            return False
        older = [other for other in self._pending.values() if other.turn < one.turn and self._may_stake(other)]
        return not self._clashes(one, older)

    def _may_stake(self, one: Work) -> bool:
        return one.id in self._clashed and self._now - self._clashed[one.id] >= self._rules.stake_ms

    def _fits(self, one: Work, holders: Iterable[Work]) -> bool:
        used = sum(other.weight for other in holders)
        return not used or not one.weight or self._rules.capacity is None or used + one.weight <= self._rules.capacity

    def _clashes(self, one: Work, others: Iterable[Work]) -> bool:
        return any(True for other in others for _ in _broken(one, other, self._rules.uses))


def _broken(one: Work, other: Work, uses: Mapping[str, Uses]) -> Iterator[str]:
    """Name the rules that forbid two to run together."""
    kinds, same = {one.kind, other.kind}, one.name == other.name
    same_project = _project(one, uses) == _project(other, uses)
    same_inventory = _inventory(one, uses) == _inventory(other, uses)
    alone = same and not uses.get(one.name, Uses()).simultaneous
    forbidden = {
        "only 1 project update for a project": kinds == {"project"} and same,
        "only 1 inventory update for a source": kinds == {"source"} and same,
        "only a job xor a project update": kinds == {"job_template", "project"} and same_project,
        "only a job xor inventory updates": kinds == {"job_template", "source"} and same_inventory,
        "an ad-hoc command has its inventory alone": "ad_hoc" in kinds and kinds <= AD_HOC and same_inventory,
        "only 1 system job": kinds == {"system_job_template"},
        "only 1 job for a template": kinds == {"job_template"} and alone,
        "only 1 workflow for a template": kinds == {"workflow_template"} and alone,
    }
    yield from (rule for rule, holds in forbidden.items() if holds)


def _project(work: Work, uses: Mapping[str, Uses]) -> str | None:
    return work.name if work.kind == "project" else uses.get(work.name, Uses()).project


def _inventory(work: Work, uses: Mapping[str, Uses]) -> str | None:
    if work.kind in {"source", "ad_hoc"}:
        return work.name.partition("/")[0]
    return uses.get(work.name, Uses()).inventory


def check_updates(repo: Repo, found: Iterable[Work], rules: Rules) -> None:
    """Check that each launch had updates that were fresh enough, and that each dependent update was made once."""
    made: dict[int, list[int]] = defaultdict(list)
    by_id = {work.id: work for work in found}
    for work in by_id.values():
        links = repo.launches.links([id for _, id in repo.read.labels_page(work.graph, -1, ALL)])
        resources = sorted(link.resource for link in links.values())
        if work.name in rules.uses and work.kind not in UPDATES:
            assert resources == sorted(rules.uses[work.name].resources), f"{work} is linked to {resources}"
        updates = {task.id: task for task in repo.tasks.read([link.update for link in links.values()])}
        for link in links.values():
            _check_link(work, link, updates[link.update], rules)
            if link.freshness == "join":
                states = by_id[link.update].states
                state = next((state for since, state in reversed(states) if since <= work.created), "unscheduled")
                assert state in IN_FLIGHT, f"{work} joined an update that was {state}"
            if link.freshness == "update":
                made[link.update].append(work.graph)
    dependent = [work for work in by_id.values() if work.launch.launch_type == "dependent"]
    for work in dependent:
        assert len(made[work.id]) == 1, f"update {work.id} was made for {made[work.id]}"


def _check_link(work: Work, link: LinkRow, update: TaskRecord, rules: Rules) -> None:
    """Check that an update was as fresh as it was said to be, and what became of the work behind it."""
    if link.freshness == "update":
        assert update.created_ms < work.created, "an update is created before its job"
    else:
        good_for = rules.cache_ms.get(link.resource, 0) if link.freshness == "fresh" else 0
        assert update.moved_ms + good_for >= work.created - SLACK_MS, f"{work}: the {link.freshness} update was too old"
    if work.held:
        assert update.state.text == "successful", "a job ran without its update"
        assert update.moved_ms <= work.held[0].since, "a job ran before its update had ended"
    elif update.state.text != "successful":
        assert work.state in {"failed", "canceled"}, f"{work} is {work.state}, and its update {update.state}"


#: The graphs of a launch are made one after the other, each a millisecond after the one before.
SLACK_MS = 10
#: Stakes are looked at once a second.
STAKE_SLACK_MS = 1_100
UPDATES = {"project", "source"}
IN_FLIGHT = {"unscheduled", "pending", "waiting", "running"}


def _end(span: Span) -> int:
    return 2**63 if span.until is None else span.until
