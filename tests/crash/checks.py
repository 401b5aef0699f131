"""What has to be true after a crash, whatever it hit: nothing acknowledged is lost, and nothing was made up."""

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
from tests.races import ledger
from tests.races.ledger import Ledger

#: How each graph of the day ends, by the id or the key it was submitted with.
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
}
#: More than any of it.
ALL = 1_000_000


def check(engine: Engine, lines: list[Line]) -> Ledger:
    """Check the store and the journal against each other, and each against itself."""
    found = ledger.read(engine.store.url)
    assert ledger.faults(found) == []
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
    assert [*lost_words(found, lines)] == []
    assert [*made_up(found, lines, labels)] == []
    assert [*unasked(found, lines)] == []
    # What somebody died at is dropped as often as somebody did.
    assert Counter({row: count for row, count in audits.items() if row[0] != DROP}) == Counter(
        [*asked(lines), *asked_inside(found)]
    )
    return found


def lost_graphs(found: Ledger, lines: Iterable[Line], labels: dict[int, str]) -> Iterator[str]:
    """Every graph that was answered is there, whole, and where it should have come to."""
    for line in lines:
        if line.call in {"submit", "extend"}:
            id = line.answer.graph
            there = {labels[task] for task, row in found.tasks.items() if row["graph_id"] == id}
            if id not in found.graphs or not set(line.said["document"]["tasks"]) <= there:
                yield f"graph {id} has {there}"
        if line.call == "submit":
            (name,) = line.said["named"].values()
            if found.graphs[line.answer.graph]["state"] != ENDS[name]:
                yield f"{name} is {found.graphs[line.answer.graph]['state']}"


def lost_words(found: Ledger, lines: Iterable[Line]) -> Iterator[str]:
    """Every lease that was given is an attempt, and every result that was taken is its end."""
    for line in polls(lines):
        command = line.said["command"]
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
                yield f"{report} was taken, and the attempt is {attempt}"


def made_up(found: Ledger, lines: list[Line], labels: dict[int, str]) -> Iterator[str]:
    """There is no graph and no task that nobody asked for."""
    wanted: Counter[tuple[int, str]] = Counter()
    for line in lines:
        if line.call in {"submit", "extend"}:
            wanted.update((line.answer.graph, label) for label in line.said["document"]["tasks"])
    wanted.update(born(found, lines, labels))
    there = Counter((row["graph_id"], labels[task]) for task, row in found.tasks.items())
    if there != wanted:
        yield f"there is {there - wanted} too much and {wanted - there} too little"


def born(found: Ledger, lines: list[Line], labels: dict[int, str]) -> Iterator[tuple[int, str]]:
    """Name the tasks of graphs inside tasks, by graph: each attempt of such a task has made one."""
    documents = {line.answer.graph: line.said["document"] for line in lines if line.call == "submit"}
    inner = {id: graph["parent_id"] for id, graph in found.graphs.items() if graph["parent_id"] is not None}
    for id, task in sorted(inner.items(), key=lambda one: -one[0]):  # what is inside is younger, and so its key less
        around = documents[found.tasks[task]["graph_id"]]
        documents[id] = around["tasks"][labels[task]]["task"]["payload"]["graph"]
        yield from ((id, label) for label in documents[id]["tasks"])


def unasked(found: Ledger, lines: list[Line]) -> Iterator[str]:
    """There is no attempt that nobody asked for, and none that nobody was told of."""
    asking = {line.said["command"]["poll"] for line in polls(lines)}
    given = {(lease.task, lease.attempt) for line in polls(lines) for lease in line.answer.leases}
    rows = [row for attempts in found.attempts.values() for row in attempts if row["bot_id"] != "server"]
    yield from (f"nobody asked for {row}" for row in rows if row["poll_id"] not in asking)
    yield from (f"nobody was told of {row}" for row in rows if (row["task_id"], row["number"]) not in given)


def asked(lines: Iterable[Line]) -> Iterator[tuple[str, int]]:
    """Name what people asked for, as the audit does."""
    for line in lines:
        if line.call in {"submit", "extend"}:
            yield line.call, line.answer.graph
        if line.call in {"Cancel", "Rerun"}:
            yield line.call.lower(), line.said["command"]["graph"]
        if line.call == "Approve":
            command = line.said["command"]
            yield "approve" if command["approved"] else "deny", command["task"]
        if line.call == "set_pool":
            yield line.call, NO_SUBJECT
        if line.call == "spoil":  # every number of it was mended once
            bot, service = NO_SUBJECT, NO_SUBJECT
            yield from (("repair", one) for one in (line.said["graph"], *line.said["tasks"], bot, service))


def asked_inside(found: Ledger) -> Iterator[tuple[str, int]]:
    """Name what was asked for in the place of people: the graphs inside tasks, and that they end."""
    for id, graph in found.graphs.items():
        if graph["parent_id"] is not None:
            yield "submit", id
            yield from [("cancel", id)] if graph["canceled_ms"] is not None else []


def polls(lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if line.call == "poll")


def repeated(engine: Engine, lines: Iterable[Line]) -> Iterator[tuple[Any, Any]]:
    """Ask again what people asked; give the first answer and the second, as if there were no echoes."""
    for line in lines:
        if line.call == "submit":
            again = engine.submit(line.said["document"], actor="ann", **line.said["named"])
            yield line.answer.graph, getattr(again, "graph", again)
        if line.call == "extend":
            again = engine.extend(line.said["graph"], line.said["document"], actor="ann")
            yield line.answer.graph, getattr(again, "graph", again)
        assert line.call != "abandon" or line.answer == ABANDONED
