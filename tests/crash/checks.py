"""Checks after a crash: nothing acknowledged is lost, and nothing exists that was not requested."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.doctor.check import doctor
from taskyard.lifecycle.rows import DROP
from taskyard.views.history import read_history, replay
from tests.crash.journal import Line
from tests.crash.scenario import ABANDONED
from tests.lifecycle.recount import recount
from tests.races import invariants
from tests.races.invariants import Snapshot

#: The final state of each graph of the scenario, by the id or key it was submitted with.
ENDS = {
    "6000000000000018": "finished",
    "mutexes": "finished",
    "6000000000000038": "finished",
    "6000000000000048": "canceled",
    "6000000000000058": "finished",
    "6000000000000078": "canceled",
    "6000000000000088": "canceled",
    "6000000000000098": "finished",
    "last": "finished",
    "night": "finished",
    "stopped": "canceled",
    "leader": "blocked",
    "followers": "finished",
}
#: A limit for reads that is higher than any count.
ALL = 1_000_000


def check(engine: Engine, lines: list[Line]) -> Snapshot:
    """Check the store and the journal against each other, and each against itself."""
    found = invariants.read(engine.store.url)
    assert invariants.violations(found, unpublished=False) == []  # the scenario has a follower
    with engine.store.read() as repo:
        assert doctor(repo, engine.clock.now()) == []
        recount(repo)
        assert repo.graphs.loading(engine.clock.now(), 9) == []
        assert repo.continuations.after(-1, 9) == []
        for id, task in found.tasks.items():
            assert str(replay(read_history(repo, id))) == task["state"]
        labels = {row[0]: row[1] for graph in found.graphs for row in repo.tasks.definitions_of(graph)}
        subjects = [NO_SUBJECT, *found.graphs, *found.tasks]
        audits = Counter((row.action, one) for one in subjects for row in repo.events.audits_of(one, ALL))
    assert all(line.answered for line in lines)
    assert [*lost_graphs(found, lines, labels)] == []
    assert [*lost_answers(found, lines)] == []
    assert [*unrequested_tasks(found, lines, labels)] == []
    assert [*unrequested_attempts(found, lines)] == []
    # An unfinished load is dropped as often as a process died in one.
    assert Counter({row: count for row, count in audits.items() if row[0] != DROP}) == Counter(
        [*expected_audits(lines), *expected_audits_of_subgraphs(found)]
    )
    return found


def lost_graphs(found: Snapshot, lines: Iterable[Line], labels: dict[int, str]) -> Iterator[str]:
    """Every acknowledged graph exists, is complete, and has its final state."""
    for line in lines:
        if line.call in {"submit", "extend"}:
            id = line.answer.graph
            there = {labels[task] for task, row in found.tasks.items() if row["graph_id"] == id}
            if id not in found.graphs or not set(line.arguments["document"]["tasks"]) <= there:
                yield f"graph {id} has {there}"
        if line.call == "submit":
            (name,) = line.arguments["named"].values()
            if found.graphs[line.answer.graph]["state"] != ENDS[name]:
                yield f"{name} is {found.graphs[line.answer.graph]['state']}"


def lost_answers(found: Snapshot, lines: Iterable[Line]) -> Iterator[str]:
    """Every lease that was given is an attempt, and every accepted report is its end."""
    for line in polls(lines):
        command = line.arguments["command"]
        for lease in line.answer.leases:
            attempt = found.attempts[lease.task][lease.attempt - 1]
            if (attempt["bot_id"], attempt["poll_id"]) != (command["bot"], command["poll"]):
                yield f"{lease} is the attempt {attempt}"
            if attempt["fence"] != lease.fence:
                yield f"{lease} has the fence {attempt['fence']}"
        for report, answer in zip(command["reports"], line.answer.reports, strict=True):
            attempt = found.attempts[report["task"]][report["attempt"] - 1]
            if not hasattr(answer, "state"):
                yield f"{report} was refused: {answer}"
            elif attempt["signal"] != report["signal"]:
                yield f"{report} was accepted, and the attempt is {attempt}"


def unrequested_tasks(found: Snapshot, lines: list[Line], labels: dict[int, str]) -> Iterator[str]:
    """Every task was requested."""
    wanted: Counter[tuple[int, str]] = Counter()
    for line in lines:
        if line.call in {"submit", "extend"}:
            wanted.update((line.answer.graph, label) for label in line.arguments["document"]["tasks"])
    wanted.update(tasks_of_subgraphs(found, lines, labels))
    there = Counter((row["graph_id"], labels[task]) for task, row in found.tasks.items())
    if there != wanted:
        yield f"there is {there - wanted} too much and {wanted - there} too little"


def tasks_of_subgraphs(found: Snapshot, lines: list[Line], labels: dict[int, str]) -> Iterator[tuple[int, str]]:
    """The tasks of graphs inside tasks, by graph: each attempt of such a task creates one."""
    documents = {line.answer.graph: line.arguments["document"] for line in lines if line.call == "submit"}
    inner = {id: graph["parent_id"] for id, graph in found.graphs.items() if graph["parent_id"] is not None}
    for id, task in sorted(inner.items(), key=lambda one: -one[0]):  # an inner graph is younger, so its id is less
        around = documents[found.tasks[task]["graph_id"]]
        documents[id] = around["tasks"][labels[task]]["task"]["payload"]["graph"]
        yield from ((id, label) for label in documents[id]["tasks"])


def unrequested_attempts(found: Snapshot, lines: list[Line]) -> Iterator[str]:
    """Every attempt was requested by a poll, and given to a bot in its answer."""
    asking = {line.arguments["command"]["poll"] for line in polls(lines)}
    given = {(lease.task, lease.attempt) for line in polls(lines) for lease in line.answer.leases}
    rows = [row for attempts in found.attempts.values() for row in attempts if row["bot_id"] != "server"]
    yield from (f"no poll requested {row}" for row in rows if row["poll_id"] not in asking)
    yield from (f"no answer has {row}" for row in rows if (row["task_id"], row["number"]) not in given)


def expected_audits(lines: Iterable[Line]) -> Iterator[tuple[str, int]]:
    """The audit entries of the requests in the journal."""
    for line in lines:
        if line.call in {"submit", "extend"}:
            yield line.call, line.answer.graph
        if line.call in {"Cancel", "Rerun"}:
            yield line.call.lower(), line.arguments["command"]["graph"]
        if line.call == "Approve":
            command = line.arguments["command"]
            yield "approve" if command["approved"] else "deny", command["task"]
        if line.call == "set_pool":
            yield line.call, NO_SUBJECT
        if line.call == "corrupt_counts":  # each count was repaired once
            bot, service = NO_SUBJECT, NO_SUBJECT
            yield from (("repair", one) for one in (line.arguments["graph"], *line.arguments["tasks"], bot, service))


def expected_audits_of_subgraphs(found: Snapshot) -> Iterator[tuple[str, int]]:
    """The audit entries of graphs inside tasks, which the server submits and cancels."""
    for id, graph in found.graphs.items():
        if graph["parent_id"] is not None:
            yield "submit", id
            yield from [("cancel", id)] if graph["canceled_ms"] is not None else []


def polls(lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if line.call == "poll")


def repeated(engine: Engine, lines: Iterable[Line]) -> Iterator[tuple[Any, Any]]:
    """Repeat the requests of people; yield the first and the second answer, without their echo flags."""
    for line in lines:
        if line.call == "submit":
            again = engine.submit(line.arguments["document"], actor="ann", **line.arguments["named"])
            yield line.answer.graph, getattr(again, "graph", again)
        if line.call == "extend":
            again = engine.extend(line.arguments["graph"], line.arguments["document"], actor="ann")
            yield line.answer.graph, getattr(again, "graph", again)
        assert line.call != "abandon" or line.answer == ABANDONED
