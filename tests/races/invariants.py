"""Checks a database against the invariants of the system, without using any of the code that it checks.

It reads rows with plain SQL, replays the events of each graph in order, and returns a sentence for each violation.
The sentences use the names of the columns.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import psycopg

LEASED = {"running", "stopping"}
HOLDING = {"waiting", "running", "stopping"}
BAD = {"failed", "error", "canceled"}
ENDED = BAD | {"successful", "skipped"}
#: The states of a prerequisite in which an edge is met.
MEETS = {"success": {"successful"}, "failure": BAD, "always": BAD | {"successful"}}
#: The signals that end an attempt.
ENDS = {"succeed", "fail", "lose", "deadline"}
#: The letters of stored transitions.
STATES = {
    "u": "unscheduled",
    "b": "blocked",
    "p": "pending",
    "w": "waiting",
    "r": "running",
    "t": "stopping",
    "s": "successful",
    "f": "failed",
    "e": "error",
    "c": "canceled",
    "g": "canceling",
    "k": "skipped",
    "d": "finished",
}
SIGNALS = {
    "R": "release",
    "B": "block",
    "D": "doom",
    "S": "skip",
    "M": "mend",
    "U": "reuse",
    "A": "admit",
    "N": "unadmit",
    "C": "claim",
    "Y": "succeed",
    "F": "fail",
    "L": "lose",
    "X": "expire",
    "Z": "deadline",
    "K": "cancel",
    "G": "rerun",
}
RETRIES = 2


@dataclass(frozen=True)
class Fact:
    """One event."""

    subject: int
    number: int
    graph: int
    source: str | None
    target: str
    signal: str | None
    attempt: int | None
    bot: str | None


@dataclass
class Snapshot:
    """The rows of all tables, as of one moment."""

    tasks: dict[int, dict[str, Any]] = field(default_factory=dict)
    graphs: dict[int, dict[str, Any]] = field(default_factory=dict)
    facts: dict[int, list[Fact]] = field(default_factory=dict)  # by graph, in order
    about: dict[int, list[Fact]] = field(default_factory=dict)  # by task or graph, in order
    attempts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # by task, in order
    edges: dict[int, list[tuple[int, str]]] = field(default_factory=dict)  # by dependent
    mutexes: dict[int, list[tuple[str, str | None]]] = field(default_factory=dict)
    pools: dict[str, int] = field(default_factory=dict)  # those with a fixed capacity

    def of(self, subject: int) -> list[Fact]:
        """The facts about one task or graph."""
        return self.about.get(subject, [])

    def signals(self, subject: int) -> Counter[str | None]:
        """The number of each signal that one task received."""
        return Counter(fact.signal for fact in self.of(subject))

    def ends(self, graph: int) -> list[str]:
        """The states that a graph entered, in order."""
        return [fact.target for fact in self.of(graph)]


def read(url: str) -> Snapshot:
    """Read a database."""
    snapshot = Snapshot()
    with _Tables(url) as tables:
        snapshot.tasks = {
            row["id"]: row
            for row in tables.rows(
                "SELECT t.*, q.pool FROM task t JOIN queue q ON q.id = t.queue_id JOIN graph g ON g.id = t.graph_id"
                " WHERE t.loading = 0 AND g.loader IS NULL"
            )
        }
        snapshot.graphs = {row["id"]: row for row in tables.rows("SELECT * FROM graph WHERE loader IS NULL")}
        for row in tables.rows("SELECT * FROM event ORDER BY graph_id, number"):
            snapshot.facts.setdefault(row["graph_id"], []).extend(_facts(row))
            snapshot.about.setdefault(row["subject_id"], []).extend(_facts(row))
        for row in tables.rows("SELECT * FROM attempt ORDER BY task_id, number"):
            snapshot.attempts.setdefault(row["task_id"], []).append(row)
        for row in tables.rows("SELECT * FROM edge"):
            snapshot.edges.setdefault(row["dependent_id"], []).append((row["prerequisite_id"], row["on_end"]))
        for row in tables.rows("SELECT * FROM task_mutex"):
            snapshot.mutexes.setdefault(row["task_id"], []).append((row["key"], row["party"]))
        fixed = tables.rows("SELECT * FROM pool WHERE capacity IS NOT NULL")
        snapshot.pools = {row["name"]: row["capacity"] for row in fixed}
    return snapshot


def violations(snapshot: Snapshot, unpublished: bool = True) -> list[str]:
    """Every violation of an invariant; `unpublished`: no event may have been published."""
    found = [*_attempts(snapshot), *_walks(snapshot), *_graph_states(snapshot), *_rows_without_owner(snapshot)]
    return [*found, *_outbox(snapshot, unpublished)]


def clashes(snapshot: Snapshot) -> list[str]:
    """The mutexes that are held by excluding tasks now, and the pools that are over capacity."""
    holders: defaultdict[str, list[tuple[int, str | None]]] = defaultdict(list)
    weights: defaultdict[str, list[int]] = defaultdict(list)
    for id, task in snapshot.tasks.items():
        if task["state"] in HOLDING:
            for key, party in snapshot.mutexes.get(id, []):
                holders[key].append((id, party))
            weights[task["pool"]] += [task["weight"]] if task["weight"] else []
    found = [f"{key} is held by {who}" for key, who in holders.items() if not _go_together(who)]
    for pool, capacity in snapshot.pools.items():
        if sum(weights[pool]) > capacity and len(weights[pool]) > 1:
            found.append(f"pool {pool} carries {sum(weights[pool])} of {capacity}")
    return found


def _attempts(snapshot: Snapshot) -> Iterator[str]:
    """Attempts of a task follow one another, fences rise, each ends once, and none costs more than is allowed."""
    for id, task in snapshot.tasks.items():
        attempts = snapshot.attempts.get(id, [])
        if [one["number"] for one in attempts] != list(range(1, task["attempt"] + 1)):
            yield f"task {id} has the attempts {[one['number'] for one in attempts]} of {task['attempt']}"
        for one, following in pairwise(attempts):
            if one["ended_ms"] is None or one["ended_ms"] > following["claimed_ms"]:
                yield f"attempts {one['number']} and {following['number']} of task {id} overlap"
            if one["fence"] >= following["fence"]:
                yield f"the fence of task {id} does not rise: {one['fence']}, {following['fence']}"
        is_open = [one["ended_ms"] is None for one in attempts]
        if any(is_open[:-1]) or (bool(is_open) and is_open[-1]) != (task["state"] in LEASED):
            yield f"task {id} is {task['state']} with the open attempts {is_open}"
        yield from _budgets(id, task, attempts)


def _budgets(id: int, task: dict[str, Any], attempts: list[dict[str, Any]]) -> Iterator[str]:
    rules = json.loads(task["rules"]) if task["rules"] else {}
    spent = Counter((one["round"], one["signal"]) for one in attempts)
    for (round, signal), count in spent.items():
        allowed = {"fail": rules.get("reruns", 0) + 1, "lose": rules.get("retries", RETRIES) + 1, "succeed": 1}
        if signal in allowed and count > allowed[signal]:
            yield f"{count} attempts of task {id} in round {round} ended with {signal}"


def _walks(snapshot: Snapshot) -> Iterator[str]:
    """Events have no gap; each begins where the last of its task ended; no task starts before its prerequisites."""
    ends: dict[int, str] = {}
    for graph, facts in snapshot.facts.items():
        if [fact.number for fact in facts] != list(range(1, len(facts) + 1)):
            yield f"the events of graph {graph} are {[fact.number for fact in facts]}"
        where: dict[int, str] = {}
        for fact in facts:
            if fact.subject != graph:
                yield from _step(snapshot, where, fact)
        ends |= where
    for id, task in snapshot.tasks.items():
        if task["state"] != ends.get(id, "unscheduled"):
            yield f"task {id} is {task['state']}, and its events end at {ends.get(id)}"


def _step(snapshot: Snapshot, where: dict[int, str], fact: Fact) -> Iterator[str]:
    if where.get(fact.subject, "unscheduled") != fact.source:
        yield f"event {fact.number} of graph {fact.graph} begins at {fact.source} and not at {where.get(fact.subject)}"
    if fact.signal == "release":
        for prerequisite, on in snapshot.edges.get(fact.subject, []):
            stands = where.get(prerequisite, "unscheduled")
            if stands not in MEETS[on] and snapshot.tasks[fact.subject]["join_rule"] == "all":
                yield f"task {fact.subject} was released while {prerequisite} was {stands}"
    if fact.source in ENDED and fact.target in ENDED:
        yield f"task {fact.subject} ended twice: {fact.source}, {fact.target}"
    if fact.signal in ENDS and fact.attempt is not None and fact.source not in LEASED:
        yield f"attempt {fact.attempt} of task {fact.subject} ended while the task was {fact.source}"
    where[fact.subject] = fact.target
    if fact.signal in {"admit", "claim"} and not _together(snapshot, where, fact.subject):
        yield f"event {fact.number} of graph {fact.graph} admitted task {fact.subject} beside one that excludes it"


def _together(snapshot: Snapshot, where: dict[int, str], id: int) -> bool:
    """Whether a task may hold its mutexes beside the tasks of its graph that hold theirs."""
    mine = dict(snapshot.mutexes.get(id, []))
    for other in where if mine else ():
        if other != id and where[other] in HOLDING:
            shared = [(mine[key], party) for key, party in snapshot.mutexes.get(other, []) if key in mine]
            if not all(_go_together([(id, one), (other, two)]) for one, two in shared):
                return False
    return True


def _graph_states(snapshot: Snapshot) -> Iterator[str]:
    """A graph has the state of its last event, ends once, and is finished if every task is successful or skipped."""
    for id, graph in snapshot.graphs.items():
        ends = snapshot.of(id)
        steps = [(fact.source, fact.target) for fact in ends]
        if [source for source, _ in steps[1:]] != [target for _, target in steps[:-1]]:
            yield f"graph {id} went {steps}"
        if not ends or ends[-1].target != graph["state"]:
            yield f"graph {id} is {graph['state']}, and its events say {steps}"
        states = [task["state"] for task in snapshot.tasks.values() if task["graph_id"] == id]
        whole = set(states) <= {"successful", "skipped"}
        if graph["canceled_ms"] is None and whole and graph["state"] != "finished":
            yield f"graph {id} is {graph['state']} though all its tasks are successful or skipped"
        if graph["state"] == "finished" and not set(states) <= ENDED:
            yield f"graph {id} is finished with {Counter(states)}"


def _rows_without_owner(snapshot: Snapshot) -> Iterator[str]:
    yield from clashes(snapshot)
    for graph in snapshot.facts:
        if graph not in snapshot.graphs:
            yield f"there are events of graph {graph}, which does not exist"
    for id, task in snapshot.tasks.items():
        if task["state"] in LEASED and task["bot_id"] is None:
            yield f"task {id} is {task['state']} and has no bot"


def _outbox(snapshot: Snapshot, unpublished: bool) -> Iterator[str]:
    """Every event is stored, and all are still to be published if none was."""
    for id, graph in snapshot.graphs.items():
        published_max = 0 if unpublished else graph["events"]
        if graph["events_published"] > published_max or graph["events"] != len(snapshot.facts.get(id, [])):
            yield f"graph {id} has {graph['events']} events, of which {graph['events_published']} are published"


def _go_together(holders: list[tuple[int, str | None]]) -> bool:
    """A key has one holder, or holders of one party."""
    parties = {party for _, party in holders}
    return len(holders) < 2 or (len(parties) == 1 and None not in parties)


def _facts(row: dict[str, Any]) -> list[Fact]:
    facts = [(*fact, None, None)[:3] for fact in json.loads(row["facts"])]
    return [
        Fact(row["subject_id"], number, row["graph_id"], *_move(move), attempt, bot)
        for number, (move, attempt, bot) in enumerate(facts, row["number"] - len(facts) + 1)
    ]


def _move(letters: str) -> tuple[str | None, str, str | None]:
    return STATES.get(letters[0]), STATES[letters[2]], SIGNALS.get(letters[1])


class _Tables:
    """A consistent snapshot of either database."""

    def __init__(self, url: str) -> None:
        self._connection: Any
        if url.startswith("sqlite:///"):
            self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            self._connection.execute("BEGIN")
        else:
            self._connection = psycopg.connect(url)
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(self, text: str) -> list[dict[str, Any]]:
        found = self._connection.execute(text)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
