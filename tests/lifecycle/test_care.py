"""The doctor finds every number that is not so, on both databases; repair mends it, and nothing more is found."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import psycopg
import pytest

from taskyard.core.machine import sources
from taskyard.core.words import Signal
from taskyard.lifecycle import care, recount
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.commands import Cancel, Poll, Report, Rerun
from taskyard.lifecycle.finding import Finding
from taskyard.lifecycle.lapse import lapse
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Lease
from taskyard.lifecycle.polling import poll
from taskyard.lifecycle.promises import take_up
from taskyard.lifecycle.rerun import rerun
from tests.lifecycle.yard import Labels, Yard, chain

COMMAND = {"dimensions": {"pool": "default"}, "payload": {"command": ["true"]}}


@pytest.fixture
def yard(database_url: str) -> Iterator[Yard]:
    yard = Yard(database_url)
    yield yard
    yard.close()


@dataclass
class Scene:
    """A yard with somebody in every situation."""

    yard: Yard
    url: str
    labels: Labels

    def sql(self, text: str, **more: object) -> None:
        """Do what nobody ever should: write past the verbs. Labels stand for ids."""
        text = text.format_map({**self.labels, "graph": self.labels.graph, **more})
        if self.url.startswith("sqlite"):
            connection = sqlite3.connect(self.url.removeprefix("sqlite:///"))
            connection.executescript(text)
            connection.close()
        else:
            with psycopg.connect(self.url) as postgres:
                postgres.execute(text)


@pytest.fixture
def scene(yard: Yard, database_url: str) -> Scene:
    """`boom` failed and `mop` waits to handle it, `after` is blocked by it; `long` runs and `later` waits for it;
    `lone` asks for a mutex, `told` has failed and its one dependent is not told yet."""
    tasks = {
        "boom": {"task": COMMAND},
        "mop": {"requires": [{"task": "boom", "on": "failure"}], "task": COMMAND | {"priority": 200}},
        "after": {"requires": ["boom"], "task": COMMAND},
        "long": {"task": COMMAND},
        "later": {"requires": ["long"], "task": COMMAND},
        "lone": {"task": COMMAND | {"mutexes": [{"key": "door"}]}},
        "told": {"task": COMMAND},
        "deaf": {"requires": [{"task": "told", "on": "always"}], "task": COMMAND},
    }
    labels = yard.submit({"tasks": tasks})
    yard.hello("b1")
    leases = {lease.task: lease for lease in yard.claim("b1", 3)}
    yard.end("b1", leases[labels["boom"]], Signal.FAIL, exit_code=1)
    fail_untold(yard, "b1", leases[labels["told"]])
    return Scene(yard, database_url, labels)


def fail_untold(yard: Yard, bot: str, lease: Lease) -> None:
    """Let a task fail in a transaction that can tell nobody, so that a note is left."""

    def act(corridor: Corridor) -> None:
        corridor.untold = 0
        report = Report(lease.task, lease.attempt, lease.fence, Signal.FAIL, exit_code=1)
        poll(corridor, [Poll(bot, "s1", reports=(report,))])

    yard.do(act)


def found(yard: Yard) -> list[Finding]:
    with yard.store.read() as txn:
        return care.doctor(txn, yard.now)


def open_notes(yard: Yard) -> int:
    with yard.store.read() as txn:
        return len(txn.notes.after(0, 100))


def follow_notes(yard: Yard) -> None:
    """Do what the engine does with notes."""
    with yard.store.read() as txn:
        notes = txn.notes.after(0, 100)
    for note in notes:
        yard.do(lambda corridor, id=note.id: take_up(corridor, id))  # type: ignore[misc]


#: What is done to the scene, and which columns are found to be wrong.
MENDED: dict[str, tuple[str, set[tuple[str, str]]]] = {
    "active": ("UPDATE graph SET active = active + 3 WHERE id = {graph}", {("graph", "active")}),
    "active zero": ("UPDATE graph SET active = 0 WHERE id = {graph}", {("graph", "active")}),
    "behind": ("UPDATE graph SET behind = 0 WHERE id = {graph}", {("graph", "behind")}),
    "unhandled": ("UPDATE graph SET unhandled = 7 WHERE id = {graph}", {("graph", "unhandled")}),
    "graph state": ("UPDATE graph SET state = 'finished' WHERE id = {graph}", {("graph", "state")}),
    "events": ("UPDATE graph SET events = 1 WHERE id = {graph}", {("graph", "events")}),
    "awaited": ("UPDATE task SET awaited = 2 WHERE id = {later}", {("task", "awaited")}),
    "met": ("UPDATE task SET met = 2 WHERE id = {later}", {("task", "met")}),
    "broken": ("UPDATE task SET broken = 2 WHERE id = {after}", {("task", "broken")}),
    "impossible": ("UPDATE task SET impossible = 1 WHERE id = {after}", {("task", "impossible")}),
    "edges while a note is open": ("UPDATE task SET met = 1 WHERE id = {deaf}", {("task", "met")}),
    "ran": ("UPDATE task SET handlers_ran = 1 WHERE id = {boom}", {("task", "handlers_ran")}),
    "hoped": ("UPDATE task SET handlers_hoped = 0 WHERE id = {boom}", {("task", "handlers_hoped")}),
    "hoped by a note": ("UPDATE task SET handlers_hoped = 0 WHERE id = {told}", {("task", "handlers_hoped")}),
    "telling": ("UPDATE task SET telling = 0 WHERE id = {told}", {("task", "telling")}),
    "handles": ("UPDATE task SET handles = 0 WHERE id = {mop}", {("task", "handles")}),
    "excludes": ("UPDATE task SET excludes = 0 WHERE id = {lone}", {("task", "excludes")}),
    "contends": ("UPDATE task SET contends = 0 WHERE id = {lone}", {("task", "contends")}),
    "queue": ("UPDATE task SET queue_id = 0 WHERE id = {mop}", {("task", "queue_id")}),
    "due": ("UPDATE task SET due_ms = NULL WHERE id = {long}", {("task", "due_ms")}),
    "due of nothing": ("UPDATE task SET due_ms = 5 WHERE id = {boom}", {("task", "due_ms")}),
    "attempt": ("UPDATE task SET attempt = 7 WHERE id = {long}", {("task", "attempt")}),
    "round": ("UPDATE task SET round = 3 WHERE id = {long}", {("task", "round")}),
    "reruns": ("UPDATE task SET reruns_used = 3 WHERE id = {long}", {("task", "reruns_used")}),
    "retries": ("UPDATE task SET retries_used = 3 WHERE id = {long}", {("task", "retries_used")}),
    "ended attempt": ("UPDATE attempt SET ended_ms = 5 WHERE task_id = {long}", {("attempt", "end of 1")}),
    "open attempt": ("UPDATE attempt SET ended_ms = NULL WHERE task_id = {boom}", {("attempt", "end of 1")}),
    "fence": ("UPDATE attempt SET fence = 5 WHERE task_id = {long}", {("attempt", "fence of 1")}),
    "bot of attempt": ("UPDATE attempt SET bot_id = 'b9' WHERE task_id = {long}", {("attempt", "bot of 1")}),
    "service queues": ("UPDATE service SET queues = 9", {("service", "queues")}),
    "hash": ("UPDATE queue SET hash = 9 WHERE number = 1", {("queue", "hash")}),
    "root": ("UPDATE queue SET root = 'any' WHERE number = 1", {("queue", "root")}),
    "pool": ("UPDATE queue SET pool = 'x' WHERE number = 1", {("queue", "pool")}),
    "bot events": ("UPDATE bot SET events = 5 WHERE id = 'b1'", {("bot", "events")}),
    "served": ("INSERT INTO bot_queue (bot_id, queue_id) VALUES ('b1', 0)", {("bot_queue", "queue_id")}),
    "hold": ("INSERT INTO hold (task_id, reason) VALUES ({long}, 'mutex')", {("hold", "task")}),
    "ran for": ("UPDATE edge SET ran_for = 1 WHERE prerequisite_id = {long}", {("edge", "ran_for to {later}")}),
    "lost wake-up": (
        """UPDATE task SET was = 'blocked', state = 'unscheduled' WHERE id = {after};
           INSERT INTO event (subject_id, number, graph_id, fact)
           VALUES ({after}, {next}, {graph}, '[0, "blocked", "unscheduled", "mend", null, null, null]');
           UPDATE graph SET events = {next} WHERE id = {graph}""",
        {("task", "gate")},
    ),
}

#: What is done to the scene and nobody can mend.
LEFT: dict[str, tuple[str, set[tuple[str, str]]]] = {
    "state": (
        """UPDATE task SET was = 'pending', state = 'successful' WHERE id = {lone};
           UPDATE graph SET active = active - 1 WHERE id = {graph}""",
        {("task", "state")},
    ),
    "a torn past": (
        """UPDATE event SET fact = REPLACE(fact, '"waiting"', '"skipped"')
            WHERE subject_id = {long} AND number = {claim}""",
        {("event", "event {claim}")},
    ),
    "an illegal past": (
        """UPDATE event SET fact = REPLACE(fact, '"claim"', '"reuse"')
            WHERE subject_id = {long} AND number = {claim}""",
        {("event", "event {claim}")},
    ),
    "a lost event": (
        "DELETE FROM event WHERE subject_id = {graph} AND number = 1",
        {("graph", "number of events")},
    ),
    "definition": ("DELETE FROM task_definition WHERE id = {long}", {("task", "definition")}),
    "no attempt": ("DELETE FROM attempt WHERE task_id = {long}", {("attempt", "latest")}),
    "queue numbers": (
        "UPDATE queue SET number = 5 WHERE number = 1; UPDATE service SET queues = 5",
        {("service", "number of queues")},
    ),
    "a clash": (
        "INSERT INTO task_mutex (task_id, key, party) VALUES ({long}, 'shed', NULL), ({mop}, 'shed', 'p')",
        {("mutex", "holders")},
    ),
    "limit": (
        """INSERT INTO named_limit (name, total) VALUES ('licence', 3);
           INSERT INTO task_limit (task_id, name, amount) VALUES ({long}, 'licence', 2), ({mop}, 'licence', 2)""",
        {("limit", "use")},
    ),
    "capacity": ("INSERT INTO pool (name, capacity) VALUES ('default', 1)", {("pool", "use")}),
    "result": ("INSERT INTO result (task_id, attempt, body) VALUES ({long}, 9, '')", {("result", "attempt")}),
    "stats": ("INSERT INTO attempt_stats (task_id, attempt) VALUES ({long}, 9)", {("attempt_stats", "attempt")}),
    "output": (
        "INSERT INTO output_chunk (task_id, attempt, number, start, body) VALUES ({long}, 9, 1, 0, '')",
        {("output_chunk", "attempt")},
    ),
}


def spoil(scene: Scene, text: str, columns: set[tuple[str, str]]) -> set[tuple[str, str]]:
    with scene.yard.store.read() as txn:
        claim = next(one.number for one in txn.events.of(scene.labels["long"], 0, 100) if one.signal == Signal.CLAIM)
    scene.sql(text, next=scene.yard.graph(scene.labels.graph).events + 1, claim=claim)
    names = {label: f"{id:016x}" for label, id in scene.labels.items()} | {"claim": str(claim)}
    return {(kind, column.format_map(names)) for kind, column in columns}


def test_the_scene_is_healthy_and_a_note_of_it_is_open(scene: Scene) -> None:
    assert found(scene.yard) == []
    assert open_notes(scene.yard) == 1


@pytest.mark.parametrize("case", MENDED)
def test_every_number_that_is_not_so_is_found_and_mended(scene: Scene, case: str) -> None:
    wrong = spoil(scene, *MENDED[case])
    findings = found(scene.yard)
    assert {(one.kind, one.column) for one in findings} == wrong
    assert [str(one) for one in findings if not one.mendable] == []
    assert care.repair(scene.yard.do, findings, "ann") == len(findings)
    assert [str(one) for one in found(scene.yard)] == []


@pytest.mark.parametrize("case", LEFT)
def test_what_cannot_be_mended_is_found_and_left_alone(scene: Scene, case: str) -> None:
    wrong = spoil(scene, *LEFT[case])
    findings = found(scene.yard)
    assert {(one.kind, one.column) for one in findings} == wrong
    left = [one for one in findings if not one.mendable]
    assert left
    care.repair(scene.yard.do, findings)
    assert found(scene.yard) == left


def test_a_finding_reads_as_a_sentence() -> None:
    assert str(Finding("task", 0x7F3A8, "awaited", 3, 2)) == (
        "task 000000000007f3a8: awaited is 3 and should be 2; repair can mend it"
    )
    assert str(Finding("mutex", "door", "holders", "a and b", None, mendable=False)) == (
        "mutex door: holders is a and b and should be empty; a person has to look at it"
    )


def test_many_things_at_once_are_mended_at_once(scene: Scene) -> None:
    for text, _ in MENDED.values():
        if "{next}" not in text:
            scene.sql(text)
    care.repair(scene.yard.do, found(scene.yard))
    assert [str(one) for one in found(scene.yard)] == []


def test_a_task_that_missed_its_turn_gets_it_with_the_repair(scene: Scene) -> None:
    yard, labels = scene.yard, scene.labels
    scene.sql("UPDATE task SET awaited = 2 WHERE id = {later}")
    (lease,) = [lease for lease in leases_of(yard, "b1") if lease.task == labels["long"]]
    yard.end("b1", lease)
    assert yard.task(labels["later"]).state in sources(Signal.RELEASE)
    care.repair(yard.do, found(yard))
    assert yard.task(labels["later"]).state in sources(Signal.CLAIM)
    assert found(yard) == []


def leases_of(yard: Yard, bot: str) -> list[Lease]:
    with yard.store.read() as txn:
        tasks = txn.tasks.look([id for id, _ in txn.tasks.leased_by([bot], 9)])
    return [Lease(task.id, task.life.attempt, task.fence, yard.now) for task in tasks]


def test_an_attempt_that_never_ended_ends_as_its_event_says(scene: Scene) -> None:
    with scene.yard.store.read() as txn:
        before = txn.attempts.of(scene.labels["boom"])
    scene.sql("UPDATE attempt SET ended_ms = NULL, signal = NULL, reason = NULL, exit_code = NULL")
    care.repair(scene.yard.do, found(scene.yard))
    with scene.yard.store.read() as txn:
        after = txn.attempts.of(scene.labels["boom"])
    assert [(one.ended_ms, one.signal, one.reason) for one in after] == [
        (one.ended_ms, one.signal, one.reason) for one in before
    ]


def test_a_repair_is_audited_and_tells_others_what_is_so(scene: Scene) -> None:
    yard, graph = scene.yard, scene.labels.graph
    scene.sql(
        """UPDATE graph SET state = 'finished', events = events + 1 WHERE id = {graph};
           INSERT INTO event (subject_id, number, graph_id, fact)
           VALUES ({graph}, {next}, {graph}, '[0, "running", "finished", null, null, null, null]')""",
        next=yard.graph(graph).events + 1,
    )
    care.repair(yard.do, found(yard), "ann")
    with yard.store.read() as txn:
        audit, event = txn.events.audits_of(graph, 10)[-1], txn.events.of(graph, 0, 100)[-1]
    assert (audit.actor, audit.action) == ("ann", "repair")
    assert (event.source, event.target) == ("finished", "running")
    assert found(yard) == []


def test_a_graph_that_is_being_loaded_counts_nothing_and_is_well(yard: Yard) -> None:
    from taskyard.lifecycle import submit  # noqa: PLC0415

    one = yard.prepared(chain("a", "b"))
    begun = yard.do(lambda corridor: submit.begin(corridor, one))
    assert isinstance(begun, submit.Loading)
    rows = one.brood.rows(slice(None), begun.queues, yard.now)
    assert yard.do(lambda corridor: submit.add_page(corridor, begun.graph, one.loader, rows))
    assert found(yard) == []
    yard.do(lambda corridor: submit.open_graph(corridor, one))
    assert found(yard) == []


def test_a_repair_of_a_healthy_store_changes_nothing(scene: Scene) -> None:
    assert care.repair(scene.yard.do, []) == 0
    assert found(scene.yard) == []


def test_pages_are_walked_to_the_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        scene.yard.submit(chain("a", "b", "c"))
    monkeypatch.setattr(recount, "TASKS_MAX", 2)
    monkeypatch.setattr(recount, "EVENTS_MAX", 3)
    monkeypatch.setattr(care, "GRAPHS_MAX", 2)
    monkeypatch.setattr(care, "PAGE_MAX", 1)
    assert found(scene.yard) == []
    scene.sql("UPDATE task SET due_ms = 5; UPDATE graph SET behind = behind + 1")
    findings = found(scene.yard)
    assert len(findings) == 8 + 3 * 3 + 4
    care.repair(scene.yard.do, findings)
    assert found(scene.yard) == []


# A busy history.


@pytest.mark.parametrize("seed", range(4))
def test_a_busy_history_leaves_a_healthy_store(yard: Yard, seed: int) -> None:
    chance = Random(seed)
    graphs = [yard.submit(wild(chance)) for _ in range(4)]
    bots = [f"b{number}" for number in range(3)]
    for bot in bots:
        yard.hello(bot)
    doings: list[Callable[[], object]] = [
        lambda: yard.claim(chance.choice(bots), chance.randint(1, 4)),
        lambda: end_one(yard, chance, bots),
        lambda: end_one(yard, chance, bots),
        lambda: ask_for_one(yard, chance, graphs),
        lambda: yard.hello(chance.choice(bots)),
        lambda: yard.later(chance.randint(1, 50_000)),
        lambda: yard.do(lapse),
        lambda: follow_notes(yard),
    ]
    for _ in range(80):
        chance.choice(doings)()
    assert [str(one) for one in found(yard)] == []


def wild(chance: Random) -> dict[str, object]:
    """A graph with every sort of edge, join and policy."""
    tasks: dict[str, object] = {}
    for place in range(10):
        before = chance.sample(range(place), min(place, chance.randint(0, 3)))
        tasks[f"t{place}"] = {
            "requires": [
                {"task": f"t{one}", "on": chance.choice(["success", "success", "failure", "always"])} for one in before
            ],
            "join": chance.choice(["all", "any"]),
            "on_impossible": chance.choice(["hold", "fail", "skip"]),
            "reruns": chance.randint(0, 1),
            "task": COMMAND | ({"mutexes": [{"key": "door"}]} if chance.random() < 0.1 else {}),
        }
    return {"tasks": tasks}


def end_one(yard: Yard, chance: Random, bots: list[str]) -> None:
    bot = chance.choice(bots)
    leases = leases_of(yard, bot)
    if not leases:
        return
    lease, signal = chance.choice(leases), chance.choice([Signal.SUCCEED, Signal.FAIL, Signal.FAIL, Signal.LOSE])

    def act(corridor: Corridor) -> None:
        corridor.untold = chance.choice([0, 1, 1_000])
        report = Report(lease.task, lease.attempt, lease.fence, signal, exit_code=int(signal is Signal.FAIL))
        poll(corridor, [Poll(bot, "s1", reports=(report,))])

    yard.do(act)


def ask_for_one(yard: Yard, chance: Random, graphs: list[Labels]) -> None:
    """A person wants something: mostly a rerun, now and then an end."""
    labels = chance.choice(graphs)
    task, untold = chance.choice(list(labels.values())), chance.choice([0, 1, 1_000])

    def act(corridor: Corridor) -> None:
        corridor.untold = untold
        match chance.choice(["rerun", "rerun", "rerun", "rerun all", "cancel", "cancel behind", "cancel all"]):
            case "rerun":
                rerun(corridor, [Rerun(task=task)])
            case "rerun all":
                rerun(corridor, [Rerun(graph=labels.graph)])
            case "cancel":
                cancel(corridor, [Cancel(task=task)])
            case "cancel behind":
                cancel(corridor, [Cancel(task=task, subtree=True)])
            case _:
                if chance.random() < 0.2:
                    cancel(corridor, [Cancel(graph=labels.graph)])

    yard.do(act)
