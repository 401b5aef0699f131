"""A repair writes the counts, audits each one, and lets the tasks go that missed their turn."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest

from taskyard.core.states import Signal, sources
from taskyard.lifecycle.commands import NO_SUBJECT, Lease
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.doctor.repair import repair
from taskyard.lifecycle.timeouts import apply_timeouts
from taskyard.lifecycle.transaction import Transaction
from tests.lifecycle.grounds import Grounds
from tests.lifecycle.scene import Scene, found, set_scene

#: Something wrong for each transaction of a repair.
EVERYWHERE = """
    UPDATE task SET open_continuations = 7; UPDATE graph SET behind = 40; UPDATE bot SET events = 50;
    UPDATE service SET queues = 60; UPDATE queue SET hash = 70 WHERE number > 0;
    INSERT INTO bot_queue (bot_id, queue_id) VALUES ('b1', 0);
    DELETE FROM admission_dirty; INSERT INTO hold (task_id, reason) VALUES ({long}, 'mutex')"""


@pytest.fixture
def scene(database_url: str) -> Iterator[Scene]:
    yard = Grounds(database_url)
    yield set_scene(yard, database_url)
    yard.close()


def audits(scene: Scene) -> Counter[tuple[int, str]]:
    """Count the audit rows of repairs, by subject and text."""
    return Counter((row[0], row[1]) for row in scene.rows("SELECT subject_id, note FROM audit WHERE action = 'repair'"))


def sentences(findings: Iterable[Finding]) -> Counter[tuple[int, str]]:
    """Give what the audit should say."""
    return Counter((int(one.subject) if one.is_keyed else NO_SUBJECT, str(one)) for one in findings)


def test_a_repair_of_a_healthy_store_changes_nothing(scene: Scene) -> None:
    assert repair(scene.yard.do, []) == 0
    assert found(scene.yard) == []


def test_each_repaired_count_is_audited_once(scene: Scene) -> None:
    scene.sql(EVERYWHERE)
    findings = found(scene.yard)
    assert repair(scene.yard.do, findings, "ann") == len(findings)
    assert audits(scene) == sentences(findings)
    assert {one.kind for one in findings} == {"task", "graph", "bot", "service", "queue", "bot_queue", "hold"}


def test_a_transaction_that_is_carried_out_twice_audits_once(scene: Scene) -> None:
    """The outcome of a commit may be unknown: then the transaction is tried again."""

    def twice(act: Callable[[Transaction], None]) -> None:
        scene.yard.do(act)
        scene.yard.do(act)

    scene.sql(EVERYWHERE)
    findings = found(scene.yard)
    repair(twice, findings, "ann")
    assert (sum(audits(scene).values()), found(scene.yard)) == (len(findings), [])


@pytest.mark.parametrize("commits", range(8))
def test_a_repair_that_stops_half_way_has_audited_what_it_repaired(scene: Scene, commits: int) -> None:
    class Stopped(Exception):
        """The process was killed."""

    def some(act: Callable[[Transaction], None]) -> None:
        nonlocal commits
        if not commits:
            raise Stopped
        commits -= 1
        scene.yard.do(act)

    scene.sql(EVERYWHERE)
    findings = found(scene.yard)
    with suppress(Stopped):
        repair(some, findings, "ann")
    assert audits(scene) == sentences({*findings} - {*found(scene.yard)})


def test_a_lost_wake_up_is_found_and_made_up_for(scene: Scene) -> None:
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
    repair(yard.do, findings, "ann")
    assert (yard.words({"after": after}), found(yard)) == ({"after": "blocked"}, [])
    assert [one[:2] for one in yard.audits(after)] == [("ann", "repair")]


def test_a_task_that_missed_its_turn_is_released_by_the_repair(scene: Scene) -> None:
    yard, later = scene.yard, scene.ids["later"]
    scene.sql("UPDATE task SET awaited = 2 WHERE id = {later}")
    long = yard.task(scene.ids["long"])
    yard.end("b1", Lease(long.id, long.life.attempt, long.fence, yard.now))
    assert yard.task(later).state in sources(Signal.RELEASE)
    repair(yard.do, found(yard))
    assert yard.task(later).state in sources(Signal.CLAIM)
    assert found(yard) == []


def test_a_task_that_no_pass_would_have_admitted_is_admitted_by_the_repair(scene: Scene) -> None:
    scene.sql("UPDATE task SET needs_admission = 1 WHERE id = {flaky}")
    scene.yard.later(3_600_000)
    scene.yard.do(apply_timeouts)
    assert scene.yard.words({"flaky": scene.ids["flaky"]}) == {"flaky": "pending"}
    repair(scene.yard.do, found(scene.yard))
    assert scene.yard.words({"flaky": scene.ids["flaky"]}) == {"flaky": "waiting"}


def test_tasks_of_a_pool_that_got_a_capacity_are_marked_for_admission(scene: Scene) -> None:
    scene.sql("INSERT INTO pool (name, capacity) VALUES ('default', 9)")
    findings = found(scene.yard)
    assert {(one.subject, one.column) for one in findings} == {
        (scene.ids[label], "needs_admission") for label in ("mop", "long")
    }
    repair(scene.yard.do, findings)
    assert found(scene.yard) == []


def test_a_graph_that_was_published_in_a_wrong_state_gets_an_event(scene: Scene) -> None:
    yard, graph = scene.yard, scene.labels.graph
    scene.sql(
        """UPDATE graph SET state = 'finished', events = events + 1 WHERE id = {graph};
           INSERT INTO event (subject_id, number, graph_id, at_ms, facts)
           VALUES ({graph}, {next}, {graph}, 0, '[["r-d"]]')""",
        next=yard.graph(graph).events + 1,
    )
    repair(yard.do, found(yard), "ann")
    with yard.store.read() as repo:
        audit, event = repo.events.audits_of(graph, 10)[-1], repo.events.of(graph, 0, 100)[-1]
    assert (audit.actor, audit.action) == ("ann", "repair")
    assert (event.source, event.target) == ("finished", "running")
    assert found(yard) == []
