"""Checks the stored history: the order of events, the attempts, and the final states.

It uses none of the product's rules, only its enums and its reads; `views.history` is under test too.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from taskyard.core.events import EXTEND
from taskyard.core.states import GraphState, Join, On, Signal, State
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow
from taskyard.store.repo.tasks import AttemptRow
from taskyard.store.rows import TaskRecord
from taskyard.views.history import read_history, replay
from tests.lifecycle.harness import ALL
from tests.model.entities import BAD, ENDED, HOLDING, LEASED, SPARED, Task

#: What still happens in a canceled graph, whose tasks may be canceled page by page.
ENDS = {Signal.SUCCEED, Signal.FAIL, Signal.LOSE, Signal.RETURN, Signal.DEADLINE}
ENDINGS = ENDS | {Signal.CANCEL, Signal.EXPIRE, Signal.UNADMIT}


def check_history(repo: Repo, tasks: Mapping[int, Task]) -> Counter[str]:
    """Check all events; return how often each arrow was taken."""
    graphs: dict[int, list[EventRow]] = defaultdict(list)
    taken: Counter[str] = Counter()
    for task in tasks.values():
        events = repo.events.of(task.id, 0, ALL)
        graphs[task.graph.id] += events
        taken.update(f"{one.source} {one.signal} {one.target}" for one in events)
        record = repo.tasks.read([task.id])[0]
        assert replay(read_history(repo, task.id)) is record.state, "replaying the events gives another state"
        rounds = _rounds(events)
        assert len(rounds) == record.life.round
        for one in rounds:
            _check_round(task, one)
        _check_attempts(record, task, repo.attempts.of(task.id), events)
    for graph, events in graphs.items():
        own = repo.events.of(graph, 0, ALL)
        _check_graph(sorted([*events, *own], key=lambda one: one.number), graph, tasks)
        taken.update(f"a graph is {one.target}" for one in own)
    return taken


def check_holders(tasks: Sequence[TaskRecord], by_id: Mapping[int, Task], pool: str, capacity: int) -> None:
    """Each mutex is held by one task or by one party, and no pool is over capacity."""
    holding = [by_id[task.id] for task in tasks if task.state in HOLDING]
    parties: dict[str, list[str | None]] = defaultdict(list)
    for task in holding:
        for key, party in task.spec.mutexes:
            parties[key].append(party)
    for key, named in parties.items():
        assert len(named) == 1 or (len(set(named)) == 1 and named[0]), f"{key} is held by {named}"
    weights = [task.weight for task in holding if task.weight and task.slice.pool == pool]
    assert sum(weights) <= capacity or len(weights) == 1


def _rounds(events: Sequence[EventRow]) -> list[list[EventRow]]:
    """Divide the events of a task into its rounds."""
    rounds: list[list[EventRow]] = [[]]
    for event in events:
        if event.signal == Signal.RERUN:
            rounds.append([])
        rounds[-1].append(event)
    return rounds


def _check_round(task: Task, events: Sequence[EventRow]) -> None:
    """One release, budgets kept, and nothing after the end but a mend."""
    again = Counter(event.signal for event in events if event.source in LEASED and event.target == State.PENDING)
    assert again[Signal.FAIL] <= task.spec.reruns
    assert again[Signal.LOSE] <= task.spec.retries + SPARED
    assert set(again) <= {Signal.FAIL, Signal.LOSE, Signal.RETURN}
    assert sum(event.signal == Signal.RELEASE for event in events) <= 1
    assert sum(event.target == State.PENDING and event.signal == Signal.EXPIRE for event in events) < len(
        task.spec.slices
    )
    for event, following in pairwise(events):
        if event.target in ENDED:
            assert (event.target, following.signal) == (State.SKIPPED, Signal.MEND), "a transition after the end"


def _check_attempts(record: TaskRecord, task: Task, attempts: Sequence[AttemptRow], events: Sequence[EventRow]) -> None:
    """Attempts are numbered, never overlap, are fenced, end once, and begin before the deadline."""
    assert [one.number for one in attempts] == list(range(1, record.life.attempt + 1))
    for one, following in pairwise(attempts):
        assert one.ended_ms is not None
        assert one.ended_ms <= following.claimed_ms
        assert one.fence < following.fence
    ends = Counter(event.attempt for event in events if event.source in LEASED and event.target not in LEASED)
    claims = Counter(event.attempt for event in events if event.signal == Signal.CLAIM)
    for one in attempts:
        assert claims[one.number] == 1
        assert ends[one.number] == (one.ended_ms is not None)
        assert one.ended_ms is not None or (one.number == record.life.attempt and record.state in LEASED)
        if task.deadline is not None:
            assert one.claimed_ms < task.deadline
            assert one.ended_ms is None or one.signal != Signal.DEADLINE or one.ended_ms >= task.deadline


def _check_graph(events: Sequence[EventRow], graph: int, tasks: Mapping[int, Task]) -> None:
    """Events have no gap; no task starts before its prerequisites; nothing starts in a canceled graph."""
    assert [one.number for one in events] == list(range(1, len(events) + 1))
    ended: dict[int, set[State]] = defaultdict(set)  # how each task has ended so far
    verdict: str | None = None
    for event in events:
        if event.subject == graph:
            assert event.source == verdict
            assert (event.target == verdict) == (event.signal == EXTEND)
            assert verdict not in {GraphState.FINISHED, GraphState.CANCELED}
            verdict = event.target
            continue
        ended[event.subject].add(State(event.target))
        if event.signal == Signal.RELEASE:
            _check_release(tasks[event.subject], ended)
        is_canceled = verdict in {GraphState.CANCELING, GraphState.CANCELED}
        assert not is_canceled or event.signal in ENDINGS, "an attempt began in a canceled graph"


def _check_release(task: Task, ended: Mapping[int, set[State]]) -> None:
    met = [
        bool(ended[other.id] & ({State.SUCCESSFUL} if on is On.SUCCESS else BAD if on is On.FAILURE else ENDED))
        for other, on in task.before
    ]
    assert (any(met) or not met) if task.spec.join is Join.ANY else all(met)
