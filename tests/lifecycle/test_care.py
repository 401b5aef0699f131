"""The doctor finds every number that is not so, on both databases; repair mends it, and nothing more is found."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from taskyard.core.states import Signal, sources
from taskyard.lifecycle import bot_sessions, submit
from taskyard.lifecycle.admission import writes
from taskyard.lifecycle.admission.pools import set_limit, set_pool
from taskyard.lifecycle.admission.scheduler import Admission
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.commands import Cancel, Done, Lease, Poll, Report, Rerun
from taskyard.lifecycle.continuations import drop_stale_loads, run_page
from taskyard.lifecycle.doctor import check, evidence, history
from taskyard.lifecycle.doctor import graphs as graphs_module
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.poll import poll
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.timeouts import apply_timeouts
from taskyard.lifecycle.transaction import Transaction
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.scene import DEFAULT, Scene, extension, found, set_scene
from tests.lifecycle.yard import Labels, Yard, chain

COMMAND = {"dimensions": {"pool": "default"}, "payload": {"command": ["true"]}}


@pytest.fixture
def yard(database_url: str) -> Iterator[Grounds]:
    yard = Grounds(database_url)
    yield yard
    yard.close()


@pytest.fixture
def scene(yard: Grounds, database_url: str) -> Scene:
    return set_scene(yard, database_url)


def open_notes(yard: Yard) -> int:
    with yard.store.read() as repo:
        return len(repo.continuations.after(0, 100))


def follow_notes(yard: Yard) -> None:
    """Do what the engine does with notes."""
    with yard.store.read() as repo:
        notes = repo.continuations.after(0, 100)
    for note in notes:
        yard.do(lambda transaction, id=note.id: run_page(transaction, id))  # type: ignore[misc]


def test_the_scene_is_healthy_and_a_note_of_it_is_open(scene: Scene) -> None:
    assert found(scene.yard) == []
    assert open_notes(scene.yard) == 1


def test_a_finding_reads_as_a_sentence() -> None:
    assert str(Finding("task", 0x7F3A8, "awaited", 3, 2)) == (
        "task 000000000007f3a8: awaited is 3 and should be 2; repair can mend it"
    )
    assert str(Finding("mutex", "door", "holders", "a and b", None, mendable=False)) == (
        "mutex door: holders is a and b and should be empty; a person has to look at it"
    )


def test_many_things_at_once_are_mended_at_once(scene: Scene) -> None:
    scene.sql(
        """UPDATE task SET priority = 7, attempt = 9, awaited = 3, needs_admission = 1, rules = 'x', due_ms = 5,
                  moved_ms = 5;
           UPDATE graph SET active = 9, state = 'finished', created_ms = 5, extensions = 4;
           UPDATE attempt SET fence = 5, round = 4, claimed_ms = 5; DELETE FROM edge; DELETE FROM task_mutex"""
    )
    check.repair(scene.yard.do, found(scene.yard))
    assert [str(one) for one in found(scene.yard)] == []


def test_a_wake_up_that_was_lost_is_found_and_made_up_for(scene: Scene) -> None:
    yard, after, number = scene.yard, scene.ids["after"], scene.yard.graph(scene.ids["now"]).events + 1
    scene.sql(
        """UPDATE task SET previous_state = 'blocked', state = 'unscheduled', reason = 'prerequisite', moved_ms = 0
            WHERE id = {after};
           INSERT INTO event (subject_id, number, graph_id, at_ms, facts)
           VALUES ({after}, {next}, {now}, 0, '[["bMu", null, null, "prerequisite"]]');
           UPDATE graph SET events = {next} WHERE id = {now}""",
        next=number,
    )
    findings = found(yard)
    assert [(one.subject, one.column) for one in findings] == [(after, "gate")]
    check.repair(yard.do, findings, "ann")
    assert (yard.words({"after": after}), found(yard)) == ({"after": "blocked"}, [])
    assert [one[:2] for one in yard.audits(after)] == [("ann", "repair")]


def test_a_task_that_missed_its_turn_gets_it_with_the_repair(scene: Scene) -> None:
    yard, labels = scene.yard, scene.labels
    scene.sql("UPDATE task SET awaited = 2 WHERE id = {later}")
    (lease,) = [lease for lease in leases_of(yard, "b1") if lease.task == labels["long"]]
    yard.end("b1", lease)
    assert yard.task(labels["later"]).state in sources(Signal.RELEASE)
    check.repair(yard.do, found(yard))
    assert yard.task(labels["later"]).state in sources(Signal.CLAIM)
    assert found(yard) == []


def leases_of(yard: Yard, bot: str) -> list[Lease]:
    with yard.store.read() as repo:
        tasks = repo.tasks.read([id for id, _ in repo.tasks.leased_by([bot], 9)])
    return [Lease(task.id, task.life.attempt, task.fence, yard.now) for task in tasks]


def test_an_attempt_that_never_ended_ends_as_its_event_says(scene: Scene) -> None:
    with scene.yard.store.read() as repo:
        before = repo.attempts.of(scene.labels["boom"])
    scene.sql("UPDATE attempt SET ended_ms = NULL, signal = NULL, reason = NULL, exit_code = NULL")
    check.repair(scene.yard.do, found(scene.yard))
    with scene.yard.store.read() as repo:
        after = repo.attempts.of(scene.labels["boom"])
    assert [(one.ended_ms, one.signal, one.reason) for one in after] == [
        (one.ended_ms, one.signal, one.reason) for one in before
    ]


def test_a_repair_is_audited_and_tells_others_what_is_so(scene: Scene) -> None:
    yard, graph = scene.yard, scene.labels.graph
    scene.sql(
        """UPDATE graph SET state = 'finished', events = events + 1 WHERE id = {graph};
           INSERT INTO event (subject_id, number, graph_id, at_ms, facts)
           VALUES ({graph}, {next}, {graph}, 0, '[["r-d"]]')""",
        next=yard.graph(graph).events + 1,
    )
    check.repair(yard.do, found(yard), "ann")
    with yard.store.read() as repo:
        audit, event = repo.events.audits_of(graph, 10)[-1], repo.events.of(graph, 0, 100)[-1]
    assert (audit.actor, audit.action) == ("ann", "repair")
    assert (event.source, event.target) == ("finished", "running")
    assert found(yard) == []


# Loads, and what becomes of them.


def test_a_graph_that_is_being_loaded_counts_nothing_and_is_well(yard: Yard) -> None:
    one = begun(yard, chain("a", "b"))
    assert found(yard) == []
    yard.do(lambda transaction: submit.open_graph(transaction, one))
    assert found(yard) == []


def test_a_graph_that_is_dropped_page_by_page_is_well_between_any_two(yard: Grounds) -> None:
    begun(yard, graph(d=node("c"), c=node("b"), b=node("a"), a=node()))  # what is required is dropped first
    yard.later(1)
    pages = 0
    while yard.do(lambda transaction: drop_stale_loads(transaction, yard.now, 1)):
        assert [str(one) for one in found(yard)] == []
        pages += 1
    assert pages > 3


def test_an_extension_that_is_dropped_page_by_page_is_well_between_any_two(
    yard: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = yard.submit(graph(boom=node(**DEFAULT), long=node(**DEFAULT)))
    yard.hello("b1")
    yard.fail("b1", yard.start("b1", labels)["boom"])
    one = extension(yard, labels.graph, graph(a=node("boom"), b=node("a", failure=["boom"]), c=node(always=["b"])))
    loading = yard.do(lambda transaction: submit.begin_extension(transaction, one))
    assert isinstance(loading, submit.LoadStarted)
    rows = one.brood.rows(slice(None), loading.queues, yard.now, hidden=True)
    assert yard.do(lambda transaction: submit.add_hidden_page(transaction, one, rows))
    assert found(yard) == []
    yard.later(1)
    yard.do(lambda transaction: drop_stale_loads(transaction, yard.now, 9))
    monkeypatch.setattr(submit, "PAGE_MAX", 1)
    while notes := yard.notes():
        assert [str(one) for one in found(yard)] == []
        yard.take_up(notes[0])
    assert (found(yard), yard.graph(labels.graph).extensions) == ([], 1)


def begun(yard: Yard, document: object) -> submit.NewGraph:
    """Load a graph, and do not open it."""
    one = yard.prepared(document)
    loading = yard.do(lambda transaction: submit.begin(transaction, one))
    assert isinstance(loading, submit.LoadStarted)
    rows = one.brood.rows(slice(None), loading.queues, yard.now)
    assert yard.do(lambda transaction: submit.add_page(transaction, loading.graph, one.loader, rows))
    return one


# Fences.


@pytest.mark.parametrize("fence", ["0", "fence - 1", "fence + 1", "fence * 2"])
def test_a_wrong_fence_of_a_task_does_not_cost_its_bot_the_lease(scene: Scene, fence: str) -> None:
    (lease,) = [lease for lease in leases_of(scene.yard, "b1") if lease.task == scene.ids["long"]]
    scene.sql(f"UPDATE task SET fence = {fence} WHERE id = {{long}}")  # noqa: S608 - all of it is ours
    findings = found(scene.yard)
    assert [(one.kind, one.column) for one in findings] == [("task", "fence")]
    check.repair(scene.yard.do, findings)
    assert found(scene.yard) == []
    assert isinstance(scene.yard.end("b1", lease), Done)


@pytest.mark.parametrize("fence", ["0", "fence - 1", "fence + 1", "fence * 2"])
def test_a_wrong_fence_of_an_attempt_becomes_that_of_its_task(scene: Scene, fence: str) -> None:
    before = scene.yard.task(scene.ids["long"])
    scene.sql(f"UPDATE attempt SET fence = {fence} WHERE task_id = {{long}}")  # noqa: S608 - all of it is ours
    findings = found(scene.yard)
    assert [(one.kind, one.column, one.counted) for one in findings] == [("attempt", "fence of 1", before.fence)]
    check.repair(scene.yard.do, findings)
    assert (found(scene.yard), scene.yard.task(scene.ids["long"])) == ([], before)


def test_a_fence_that_a_bot_was_given_is_not_lowered_though_no_event_explains_it(scene: Scene) -> None:
    """Its task was wrong when it was claimed: what followed is higher than it had to be, and so are all after it."""
    yard = scene.yard
    scene.sql("UPDATE task SET fence = fence * 2 WHERE id = {twice}")
    (lease,) = (one for one in yard.claim("b2", 9) if one.task == scene.ids["twice"])
    assert found(yard) == []
    scene.sql("UPDATE attempt SET fence = fence - 1 WHERE task_id = {twice} AND number = 2")
    findings = found(yard)
    assert [(one.column, one.counted) for one in findings] == [("fence of 2", lease.fence)]
    check.repair(yard.do, findings)
    assert isinstance(yard.end("b2", lease), Done)
    assert found(yard) == []


# What is done in pages by others.


def test_leases_that_the_clock_is_to_end_are_well(yard: Grounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bot_sessions, "LOST_MAX", 1)
    yard.submit(graph(**{f"t{number}": node(**DEFAULT) for number in range(4)}))
    yard.hello("b1")
    assert len(yard.claim("b1", 4)) == 4
    yard.later(1_000)
    yard.goodbye("b1")
    assert [str(one) for one in found(yard)] == []
    yard.do(apply_timeouts)
    assert [str(one) for one in found(yard)] == []


def test_tasks_that_the_next_pass_is_to_tell_of_a_capacity_are_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "ENTRIES_MAX", 1)
    assert scene.yard.do(lambda transaction: set_pool(transaction, "default", 9, False, "ann")) is True
    assert [str(one) for one in found(scene.yard)] == []
    schedule(scene.yard)
    assert [str(one) for one in found(scene.yard)] == []


# What a wrong number has led to.


def test_a_mutex_that_was_gone_is_put_back_and_who_ran_together_meanwhile_is_told(scene: Scene) -> None:
    yard = scene.yard
    yard.submit(graph(rival=node(mutexes=[{"key": "door"}], **DEFAULT)))
    scene.sql("DELETE FROM task_mutex")
    assert schedule(yard) == 3  # one too many
    assert {one.kind for one in found(yard)} == {"task_mutex"}
    check.repair(yard.do, found(yard))
    assert [(one.kind, one.subject, one.column, one.mendable) for one in found(yard)] == [
        ("mutex", "door", "holders", False)
    ]


def schedule(yard: Yard) -> int:
    """Let in whoever may go; say how many."""
    return Admission(yard.do, yard.store.read, lambda: yard.now, "me").schedule().admitted


def test_a_mutex_that_was_gone_excludes_again_after_the_repair(scene: Scene) -> None:
    yard = scene.yard
    yard.submit(graph(rival=node(mutexes=[{"key": "door"}], **DEFAULT)))
    scene.sql("DELETE FROM task_mutex; DELETE FROM task_limit")
    check.repair(yard.do, found(yard))
    assert schedule(yard) == 2
    assert found(yard) == []


def test_a_task_that_no_pass_would_have_let_in_is_let_in_by_the_repair(scene: Scene) -> None:
    scene.sql("UPDATE task SET needs_admission = 1 WHERE id = {flaky}")
    scene.yard.later(3_600_000)
    scene.yard.do(apply_timeouts)
    assert scene.yard.words({"flaky": scene.ids["flaky"]}) == {"flaky": "pending"}
    check.repair(scene.yard.do, found(scene.yard))
    assert scene.yard.words({"flaky": scene.ids["flaky"]}) == {"flaky": "waiting"}


def test_overuse_is_found_and_nobody_can_mend_it(scene: Scene) -> None:
    yard = scene.yard
    schedule(yard)
    yard.do(lambda transaction: set_limit(transaction, "licence", 1, "ann"))
    yard.do(lambda transaction: set_pool(transaction, "default", 1, False, "ann"))
    left = found(yard)
    assert [(one.kind, one.subject, one.stored, one.mendable) for one in left] == [
        ("limit", "licence", 2, False),
        ("pool", "default", 4, False),
    ]
    assert check.repair(yard.do, left) == 0


def test_tasks_that_a_pool_has_not_told_its_capacity_yet_are_found(scene: Scene) -> None:
    scene.sql("INSERT INTO pool (name, capacity) VALUES ('default', 9)")
    findings = found(scene.yard)
    assert {(one.subject, one.column) for one in findings} == {
        (scene.ids[label], "needs_admission") for label in ("mop", "long")
    }
    check.repair(scene.yard.do, findings)
    assert found(scene.yard) == []


def test_a_repair_of_a_healthy_store_changes_nothing(scene: Scene) -> None:
    assert check.repair(scene.yard.do, []) == 0
    assert found(scene.yard) == []


def test_pages_are_walked_to_the_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        scene.yard.submit(chain("a", "b", "c"))
    monkeypatch.setattr(graphs_module, "TASKS_MAX", 2)
    monkeypatch.setattr(history, "EVENTS_MAX", 3)
    monkeypatch.setattr(evidence, "ATTEMPTS_MAX", 1)
    monkeypatch.setattr(check, "GRAPHS_MAX", 2)
    monkeypatch.setattr(check, "PAGE_MAX", 1)
    assert found(scene.yard) == []
    scene.sql("UPDATE task SET due_ms = 5; UPDATE graph SET behind = behind + 1")
    findings = found(scene.yard)
    assert len(findings) == 9 + 7 + 1 + 3 * 3 + 6
    check.repair(scene.yard.do, findings)
    assert found(scene.yard) == []


# A busy history.


@pytest.mark.parametrize("seed", range(4))
def test_a_busy_history_leaves_a_healthy_store(yard: Yard, seed: int) -> None:
    be_busy(yard, Random(seed))
    assert [str(one) for one in found(yard)] == []


#: Numbers that follow from the rest to the last digit, and others that they surely are not. Only where everything was
#: canceled nobody notes any more who dealt with what.
EXACT = """
    UPDATE edge SET handled_round = 90 WHERE dependent_id IN
           (SELECT t.id FROM task t JOIN graph g ON g.id = t.graph_id WHERE g.canceled_ms IS NULL);
    UPDATE task SET reason = 'silent', attempt = 90, began_after = 91, ended = 'expire', round = 92, reruns_used = 93,
           retries_used = 94, slice_index = 7, rules = '', kind = 'graph', priority = 95, weight = 96, created_ms = 97,
           join_rule = 'x', on_impossible = 'x', is_handler = 3, is_constrained = 3, open_continuations = 98,
           avoid_bot = 'x', loading = 1, lease_until_ms = 99, fence = 7;
    UPDATE attempt SET bot_id = 'x', round = 92, slice_index = 7, claimed_ms = 97, signal = 'x', reason = 'x';
    UPDATE graph SET active = 90, behind = 91, unhandled = 92, events = 93, extensions = 94, created_ms = 95,
           moved_ms = 96, canceled_ms = 97, loader = 'x';
    DELETE FROM task_mutex"""


@pytest.mark.parametrize("seed", range(4))
def test_a_busy_history_tells_every_number_that_follows_from_it(yard: Grounds, database_url: str, seed: int) -> None:
    be_busy(yard, Random(seed))
    scene = Scene(yard, database_url, Labels(0, {}), {})
    tables = ("task", "attempt", "graph", "edge", "task_mutex")
    before = {table: sorted(map(str, scene.rows(f"SELECT * FROM {table}"))) for table in tables}  # noqa: S608 - ours
    scene.sql(EXACT)
    check.repair(yard.do, found(yard))
    assert [str(one) for one in found(yard)] == []
    after = {table: sorted(map(str, scene.rows(f"SELECT * FROM {table}"))) for table in tables}  # noqa: S608 - ours
    assert after == before


def be_busy(yard: Yard, chance: Random) -> None:
    """Let much happen."""
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
        lambda: yard.do(apply_timeouts),
        lambda: follow_notes(yard),
    ]
    for _ in range(80):
        chance.choice(doings)()


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

    def act(transaction: Transaction) -> None:
        transaction.edge_budget = chance.choice([0, 1, 1_000])
        report = Report(lease.task, lease.attempt, lease.fence, signal, exit_code=int(signal is Signal.FAIL))
        poll(transaction, [Poll(bot, "s1", reports=(report,))])

    yard.do(act)


def ask_for_one(yard: Yard, chance: Random, graphs: list[Labels]) -> None:
    """A person wants something: mostly a rerun, now and then an end."""
    labels = chance.choice(graphs)
    task, untold = chance.choice(list(labels.values())), chance.choice([0, 1, 1_000])

    def act(transaction: Transaction) -> None:
        transaction.edge_budget = untold
        match chance.choice(["rerun", "rerun", "rerun", "rerun all", "cancel", "cancel behind", "cancel all"]):
            case "rerun":
                rerun(transaction, [Rerun(task=task)])
            case "rerun all":
                rerun(transaction, [Rerun(graph=labels.graph)])
            case "cancel":
                cancel(transaction, [Cancel(task=task)])
            case "cancel behind":
                cancel(transaction, [Cancel(task=task, subtree=True)])
            case _:
                if chance.random() < 0.2:
                    cancel(transaction, [Cancel(graph=labels.graph)])

    yard.do(act)
