"""A repair writes the counts, audits each one, and moves the tasks that missed their turn."""

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
from tests.lifecycle.harness import LifecycleHarness
from tests.lifecycle.populated_store import PopulatedStore, populate, run_doctor

#: Something wrong for each transaction of a repair.
EVERYWHERE = """
    UPDATE task SET open_continuations = 7; UPDATE graph SET behind = 40; UPDATE bot SET events = 50;
    UPDATE service SET queues = 60; UPDATE queue SET hash = 70 WHERE number > 0;
    INSERT INTO bot_queue (bot_id, queue_id) VALUES ('b1', 0);
    DELETE FROM admission_dirty; INSERT INTO hold (task_id, reason) VALUES ({long}, 'mutex')"""


@pytest.fixture
def populated(database_url: str) -> Iterator[PopulatedStore]:
    harness = LifecycleHarness(database_url)
    yield populate(harness, database_url)
    harness.close()


def audits(populated: PopulatedStore) -> Counter[tuple[int, str]]:
    """Count the audit rows of repairs, by subject and text."""
    return Counter(
        (row[0], row[1]) for row in populated.rows("SELECT subject_id, note FROM audit WHERE action = 'repair'")
    )


def sentences(findings: Iterable[Finding]) -> Counter[tuple[int, str]]:
    """The expected texts of the audit."""
    return Counter((int(one.subject) if one.is_keyed else NO_SUBJECT, str(one)) for one in findings)


def test_a_repair_of_a_healthy_store_changes_nothing(populated: PopulatedStore) -> None:
    assert repair(populated.harness.do, []) == 0
    assert run_doctor(populated.harness) == []


def test_each_repaired_count_is_audited_once(populated: PopulatedStore) -> None:
    populated.sql(EVERYWHERE)
    findings = run_doctor(populated.harness)
    assert repair(populated.harness.do, findings, "ann") == len(findings)
    assert audits(populated) == sentences(findings)
    assert {one.kind for one in findings} == {"task", "graph", "bot", "service", "queue", "bot_queue", "hold"}


def test_a_transaction_that_is_carried_out_twice_audits_once(populated: PopulatedStore) -> None:
    """The outcome of a commit may be unknown: then the transaction is tried again."""

    def twice(act: Callable[[Transaction], None]) -> None:
        populated.harness.do(act)
        populated.harness.do(act)

    populated.sql(EVERYWHERE)
    findings = run_doctor(populated.harness)
    repair(twice, findings, "ann")
    assert (sum(audits(populated).values()), run_doctor(populated.harness)) == (len(findings), [])


@pytest.mark.parametrize("commits", range(8))
def test_a_repair_that_stops_half_way_has_audited_what_it_repaired(populated: PopulatedStore, commits: int) -> None:
    class Stopped(Exception):
        """The process was killed."""

    def some(act: Callable[[Transaction], None]) -> None:
        nonlocal commits
        if not commits:
            raise Stopped
        commits -= 1
        populated.harness.do(act)

    populated.sql(EVERYWHERE)
    findings = run_doctor(populated.harness)
    with suppress(Stopped):
        repair(some, findings, "ann")
    assert audits(populated) == sentences({*findings} - {*run_doctor(populated.harness)})


def test_a_lost_wake_up_is_found_and_made_up_for(populated: PopulatedStore) -> None:
    harness, after, number = (
        populated.harness,
        populated.ids["after"],
        populated.harness.graph(populated.ids["now"]).events + 1,
    )
    populated.sql(
        """UPDATE task SET previous_state = 'blocked', state = 'unscheduled', reason = 'prerequisite', moved_ms = 0,
                          gone_wrong = NULL
            WHERE id = {after};
           INSERT INTO event (subject_id, number, graph_id, at_ms, facts)
           VALUES ({after}, {next}, {now}, 0, '[["bMu", null, null, "prerequisite"]]');
           UPDATE graph SET events = {next} WHERE id = {now}""",
        next=number,
    )
    findings = run_doctor(harness)
    assert [(one.subject, one.column) for one in findings] == [(after, "gate")]
    repair(harness.do, findings, "ann")
    assert (harness.state_names({"after": after}), run_doctor(harness)) == ({"after": "blocked"}, [])
    assert [one[:2] for one in harness.audits(after)] == [("ann", "repair")]


def test_a_task_that_missed_its_turn_is_released_by_the_repair(populated: PopulatedStore) -> None:
    harness, later = populated.harness, populated.ids["later"]
    populated.sql("UPDATE task SET awaited = 2 WHERE id = {later}")
    long = harness.task(populated.ids["long"])
    harness.end("b1", Lease(long.id, long.life.attempt, long.fence, harness.now))
    assert harness.task(later).state in sources(Signal.RELEASE)
    repair(harness.do, run_doctor(harness))
    assert harness.task(later).state in sources(Signal.CLAIM)
    assert run_doctor(harness) == []


def test_a_task_that_no_pass_would_have_admitted_is_admitted_by_the_repair(populated: PopulatedStore) -> None:
    populated.sql("UPDATE task SET needs_admission = 1 WHERE id = {flaky}")
    populated.harness.advance(3_600_000)
    populated.harness.do(apply_timeouts)
    assert populated.harness.state_names({"flaky": populated.ids["flaky"]}) == {"flaky": "pending"}
    repair(populated.harness.do, run_doctor(populated.harness))
    assert populated.harness.state_names({"flaky": populated.ids["flaky"]}) == {"flaky": "waiting"}


def test_tasks_of_a_pool_that_got_a_capacity_are_marked_for_admission(populated: PopulatedStore) -> None:
    populated.sql("INSERT INTO pool (name, capacity) VALUES ('default', 9)")
    findings = run_doctor(populated.harness)
    assert {(one.subject, one.column) for one in findings} == {
        (populated.ids[label], "needs_admission") for label in ("mop", "long")
    }
    repair(populated.harness.do, findings)
    assert run_doctor(populated.harness) == []


def test_a_graph_that_was_published_in_a_wrong_state_gets_an_event(populated: PopulatedStore) -> None:
    harness, graph = populated.harness, populated.labels.graph
    populated.sql(
        """UPDATE graph SET state = 'finished', events = events + 1 WHERE id = {graph};
           INSERT INTO event (subject_id, number, graph_id, at_ms, facts)
           VALUES ({graph}, {next}, {graph}, 0, '[["r-d"]]')""",
        next=harness.graph(graph).events + 1,
    )
    repair(harness.do, run_doctor(harness), "ann")
    with harness.store.read() as repo:
        audit, event = repo.events.audits_of(graph, 10)[-1], repo.events.of(graph, 0, 100)[-1]
    assert (audit.actor, audit.action) == ("ann", "repair")
    assert (event.source, event.target) == ("finished", "running")
    assert run_doctor(harness) == []
