"""Timeouts: lost leases, expired slices, deadlines, later starts, outages."""

from typing import Any

import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MS, MISSING_WITHIN_MS, SWEEP_MS
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle.commands import Done, Refusal, Renewed
from taskyard.lifecycle.submit import begin
from taskyard.lifecycle.timeouts import AWAY_MAX_MS, OUTAGE_MS, apply_timeouts, heartbeat, mark_missing_bots
from taskyard.lifecycle.transaction import ServerIdentity
from tests.lifecycle.graphs import chain, graph, node
from tests.lifecycle.harness import LifecycleHarness

LOST_MS = LEASE_MS + GUARD_MS


def test_a_lost_lease_is_retried_elsewhere_and_then_an_error(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=1, reruns=5)))
    harness.hello("rack1")
    harness.hello("rack2")
    harness.sweep()
    first = harness.claim("rack1")[0]
    harness.wait(LOST_MS - 1, awake=["rack1", "rack2"])
    assert harness.state_names(labels) == {"a": "running"}
    harness.wait(1, awake=["rack1", "rack2"])
    task = harness.task(labels["a"])
    assert (str(task.state), task.avoid_bot, task.life.retries_used, task.life.reruns_used) == (
        "waiting",
        "rack1",
        1,
        0,
    )
    assert harness.claim("rack1") == ()
    assert isinstance(harness.end("rack1", first), Refusal)
    harness.claim("rack2")
    harness.wait(LOST_MS, awake=["rack1", "rack2"])
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)
    assert harness.graph_state(labels) == "blocked"


def test_a_renewed_lease_is_not_lost(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.sweep()
    lease = harness.claim("rack1")[0]
    for _ in range(5):
        harness.wait(30_000)
        assert isinstance(harness.renew("rack1", lease), Renewed)
    assert harness.state_names(labels) == {"a": "running"}


def test_a_stopping_task_whose_bot_is_lost_is_canceled(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.sweep()
    harness.claim("rack1")
    harness.cancel(labels["a"])
    harness.wait(LOST_MS)
    assert harness.why(labels["a"]) == (State.CANCELED, Reason.ASKED)


def test_after_an_outage_a_bot_has_one_full_lease_to_come_back(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node()))
    harness.hello("rack1")
    harness.sweep()
    leases = harness.start("rack1", labels)
    harness.advance(3_600_000)  # no server runs a sweep
    assert harness.sweep() == 2
    back = harness.now
    task = harness.task(labels["a"])
    assert (task.lease_until_ms, task.due_ms) == (back + LEASE_MS, back + LOST_MS)
    harness.wait(LEASE_MS - 1)
    assert harness.state_names(labels) == {"a": "running", "b": "running"}
    assert isinstance(harness.renew("rack1", leases["a"]), Renewed)
    harness.wait(GUARD_MS + 1)
    assert harness.state_names(labels) == {"a": "running", "b": "waiting"}


def test_the_first_sweep_after_an_outage_ends_no_lease(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=0), b=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    harness.start("rack1", labels)
    harness.advance(600_000)  # and the beat of this turn has failed, or was ten minutes ago
    assert [harness.do(lambda transaction: apply_timeouts(transaction, 1)) for _ in range(3)] == [1, 1, 0]
    assert harness.do(mark_missing_bots) == 0
    assert harness.state_names(labels) == {"a": "running", "b": "running"}
    assert {harness.task(id).lease_until_ms for id in labels.values()} == {harness.now + LEASE_MS}
    harness.wait(LOST_MS)
    assert harness.state_names(labels) == {"a": "error", "b": "error"}


def test_the_first_look_after_an_outage_marks_no_bot_as_missing(harness: LifecycleHarness) -> None:
    harness.sweep()
    harness.wait(MISSING_WITHIN_MS)
    harness.hello("rack1")
    harness.advance(600_000)
    assert harness.do(mark_missing_bots) == 0
    harness.wait(MISSING_WITHIN_MS + SWEEP_MS)
    assert harness.bot_events("rack1") == ["connected", "missing"]


def test_a_late_sweep_is_no_outage(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    harness.claim("rack1")
    harness.wait(LOST_MS - OUTAGE_MS)
    harness.advance(OUTAGE_MS)
    harness.sweep()
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_servers_whose_clocks_are_apart_do_not_take_each_other_for_an_outage(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    harness.claim("rack1")
    ahead = OUTAGE_MS - 1
    for _ in range(0, 2 * LOST_MS, SWEEP_MS):
        harness.advance(SWEEP_MS // 2)
        harness.sweep()
        harness.advance(SWEEP_MS // 2 + ahead)
        harness.sweep()
        harness.advance(-ahead)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_clock_that_was_set_back_is_an_outage_and_makes_no_lease_immortal(harness: LifecycleHarness) -> None:
    harness.sweep()
    harness.advance(-3_600_000)
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    harness.claim("rack1")
    harness.wait(LOST_MS)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


@pytest.mark.parametrize("away_ms", [580_000, 3_600_000])
def test_the_grace_after_an_outage_is_a_full_one_whatever_the_deadline(harness: LifecycleHarness, away_ms: int) -> None:
    labels = harness.submit(graph(a=node(deadline="10m"), b=node(deadline="10m")))
    harness.hello("rack1")
    harness.sweep()
    leases = harness.start("rack1", labels)
    harness.advance(away_ms)
    harness.sweep()
    assert harness.task(labels["a"]).lease_until_ms == harness.now + LEASE_MS
    # A result from before the deadline that is reported late is accepted.
    assert harness.end("rack1", leases["b"]) == Done(labels["b"], State.SUCCESSFUL)
    harness.wait(LOST_MS - 1)
    assert harness.state_names(labels)["a"] == "running"
    harness.wait(1)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.DEADLINE)


def test_a_server_that_is_started_again_gives_leases_their_full_time_however_short_it_was_away(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    harness.claim("rack1")
    harness.wait(LOST_MS - 2_000)
    harness.advance(2_000)
    harness.server = ServerIdentity(began_ms=harness.now)
    harness.sweep()
    assert harness.task(labels["a"]).lease_until_ms == harness.now + LEASE_MS
    harness.wait(LOST_MS - 1)
    assert harness.state_names(labels) == {"a": "running"}
    harness.wait(1)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


@pytest.mark.parametrize("lease_ms", [2_000, 5_000, 10_000, 20_000, LEASE_MS])
def test_a_server_that_stood_still_for_as_long_as_its_leases_can_bear_loses_none(
    harness: LifecycleHarness, lease_ms: int
) -> None:
    harness.lease_ms = lease_ms
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    lease = harness.claim("rack1")[0]
    # A bot renews after a third of its lease: from then on it cannot.
    harness.advance(lease_ms // 3)
    harness.sweep()
    harness.advance(lease_ms - lease_ms // 3 + GUARD_MS)
    harness.sweep()
    assert harness.state_names(labels) == {"a": "running"}
    assert isinstance(harness.end("rack1", lease), Done)


def test_another_server_waits_for_the_one_that_a_bot_speaks_to(harness: LifecycleHarness) -> None:
    ours, other = ServerIdentity("ours"), ServerIdentity("other")
    harness.server = other
    harness.hello("rack2")
    harness.sweep()
    harness.server = ours
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    lease = harness.claim("rack1")[0]
    harness.server = other
    harness.wait(LOST_MS + 60_000)
    assert harness.state_names(labels) == {"a": "running"}
    harness.server = ServerIdentity("ours", harness.now)
    harness.sweep()
    harness.server = other
    harness.wait(OUTAGE_MS)
    assert isinstance(harness.end("rack1", lease), Done)


def test_another_server_does_not_wait_for_ever(harness: LifecycleHarness) -> None:
    harness.server = ServerIdentity("ours")
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    harness.claim("rack1")
    harness.server = ServerIdentity("other")
    harness.sweep()
    harness.wait(AWAY_MAX_MS - SWEEP_MS)
    assert harness.state_names(labels) == {"a": "running"}
    harness.wait(SWEEP_MS + GUARD_MS + SWEEP_MS)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_lease_that_was_over_before_its_server_went_away_is_lost(harness: LifecycleHarness) -> None:
    harness.server = ServerIdentity("other")
    harness.sweep()
    harness.server = ServerIdentity("ours")
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    harness.claim("rack1")
    for _ in range(0, LOST_MS, SWEEP_MS):
        harness.advance(SWEEP_MS)
        harness.do(heartbeat)
    harness.server = ServerIdentity("other")
    harness.advance(OUTAGE_MS + 1)
    harness.sweep()
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_bot_that_speaks_to_another_server_is_judged_by_that_one(harness: LifecycleHarness) -> None:
    harness.server = ServerIdentity("ours")
    labels = harness.submit(graph(a=node(retries=0)))
    harness.hello("rack1")
    harness.sweep()
    lease = harness.claim("rack1")[0]
    harness.server = ServerIdentity("other")
    harness.sweep()
    harness.renew("rack1", lease)
    harness.wait(LOST_MS)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


def test_a_slice_that_waits_too_long_gives_way_to_the_next_and_the_last_one_to_an_error(
    harness: LifecycleHarness,
) -> None:
    slices = [
        {"dimensions": {"pool": "lab"}, "expires": "10s", "wait_for_capacity": True},
        {"dimensions": {"pool": "gone"}, "expires": "10s"},
        {"dimensions": {"pool": "default"}, "expires": "20s"},
    ]
    labels = harness.submit(graph(a=node(slices=slices)))
    first = harness.task(labels["a"]).queue
    harness.wait(10_000)
    task = harness.task(labels["a"])
    assert (str(task.state), task.life.slice_index) == ("waiting", 2)  # no bot could run the slice between
    assert task.queue != first
    assert task.due_ms == harness.now + 20_000
    harness.wait(20_000)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.EXPIRED)


def test_a_task_on_its_next_slice_is_served_by_another_bot(harness: LifecycleHarness) -> None:
    slices = [
        {"dimensions": {"pool": "lab"}, "expires": "10s", "wait_for_capacity": True},
        {"dimensions": {"pool": "default"}},
    ]
    labels = harness.submit(graph(a=node(slices=slices)))
    harness.hello("rack1")
    assert harness.claim("rack1") == ()
    harness.wait(10_000)
    lease = harness.claim("rack1")[0]
    assert (lease.task, lease.slice_index) == (labels["a"], 1)
    harness.end("rack1", lease)
    assert harness.graph_state(labels) == "finished"


def test_a_retry_without_a_bot_ends_with_the_loss_as_its_reason(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(expires="60s")))
    harness.hello("rack1")
    harness.sweep()
    harness.claim("rack1")
    harness.wait(LOST_MS + 60_000)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.BOT_LOST)


@pytest.mark.parametrize("state", ["unscheduled", "blocked", "pending", "waiting", "running", "stopping"])
def test_a_deadline_ends_a_task_wherever_it_is(harness: LifecycleHarness, state: str) -> None:
    held: dict[str, Any] = {"mutexes": [{"key": "repo"}]} if state == "pending" else {}  # no pass lets it in
    after = ["first"] if state in {"unscheduled", "blocked"} else []
    labels = harness.submit(graph(first=node(dimensions={"pool": "lab"}), a=node(*after, deadline="30s", **held)))
    harness.hello("rack1")
    harness.sweep()
    if state == "blocked":
        harness.cancel(labels["first"])
    leases = harness.claim("rack1") if state in {"running", "stopping"} else ()
    if state == "stopping":
        harness.cancel(labels["a"])
    assert harness.state_names(labels)["a"] == state
    harness.wait((LOST_MS if leases else 30_000) - 2)
    assert harness.state_names(labels)["a"] == state  # while a process may live there is no error
    harness.wait(2)
    expected = (State.CANCELED, Reason.ASKED) if state == "stopping" else (State.ERROR, Reason.DEADLINE)
    assert harness.why(labels["a"]) == expected
    assert harness.task(labels["a"]).due_ms is None


def test_a_bot_that_ends_a_task_at_its_deadline_is_believed_at_once(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(deadline="30s", reruns=3, retries=3)))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.advance(30_000)
    assert harness.end("rack1", lease, Signal.DEADLINE) == Done(labels["a"], State.ERROR)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.DEADLINE)
    life = harness.task(labels["a"]).life
    assert (life.attempt, life.reruns_used, life.retries_used) == (1, 0, 0)
    assert harness.end("rack1", lease, Signal.DEADLINE) == Done(labels["a"], State.ERROR, echo=True)


def test_what_is_lost_with_its_bot_past_the_deadline_is_not_tried_again(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(deadline="30s", retries=3)))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.advance(30_000)
    assert harness.end("rack1", lease, Signal.LOSE) == Done(labels["a"], State.ERROR)
    assert harness.why(labels["a"]) == (State.ERROR, Reason.DEADLINE)


def test_a_deadline_counts_as_a_failure_for_dependents(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(deadline="30s", reruns=3), b=node("a"), page=node(failure=["a"])))
    harness.wait(30_000)
    assert harness.state_names(labels) == {"a": "error", "b": "blocked", "page": "waiting"}


def test_a_start_that_is_put_off_begins_on_time(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(not_before="30s"), b=node("a")))
    harness.hello("rack1")
    harness.wait(29_999, awake=["rack1"])
    assert harness.state_names(labels)["a"] == "pending"
    harness.wait(1, awake=["rack1"])
    assert harness.run("rack1", labels) == ["a"]


def test_a_start_that_is_put_off_and_contends_is_left_to_a_pass(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(not_before="30s", mutexes=[{"key": "repo"}])))
    with harness.store.write() as repo:
        repo.admission.delete_dirty([number for number, _ in repo.admission.dirty(0, 100)])
    harness.wait(30_000)
    with harness.store.read() as repo:
        assert [task for _, task in repo.admission.dirty(0, 100)] == [labels["a"]]
    assert harness.state_names(labels) == {"a": "pending"}
    assert harness.sweep() == 0


def test_every_page_of_what_is_due_is_another_one(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(**{f"t{place}": node(deadline="10s") for place in range(5)}))
    harness.advance(10_000)
    dealt = [harness.do(lambda transaction: apply_timeouts(transaction, 2)) for _ in range(4)]
    assert dealt == [2, 2, 1, 0]
    assert harness.count_states(labels) == {"error": 5}


def test_what_is_still_being_loaded_is_left_alone(harness: LifecycleHarness) -> None:
    late = harness.new_graph(graph(a=node(deadline="10s")))

    def load(transaction: object) -> None:
        loading = begin(transaction, late)  # type: ignore[arg-type]
        rows = late.new_tasks.rows(slice(None), loading.queues, harness.now)  # type: ignore[union-attr]
        transaction.repo.tasks.add(rows.tasks)  # type: ignore[attr-defined]

    harness.do(load)
    harness.advance(10_000)
    assert harness.sweep() == 1
    task = harness.task(late.new_tasks.ids["a"])
    assert (str(task.state), task.due_ms) == ("unscheduled", harness.now + SWEEP_MS)
    assert harness.sweep() == 0


def test_a_silent_bot_is_noticed_once(harness: LifecycleHarness) -> None:
    harness.sweep()
    harness.wait(MISSING_WITHIN_MS)
    harness.hello("rack1")
    harness.hello("rack2")
    harness.wait(LOST_MS, awake=["rack2"])
    assert harness.bot_events("rack1") == ["connected"]
    harness.wait(SWEEP_MS, awake=["rack2"])
    assert (harness.bot_events("rack1"), harness.bot_events("rack2")) == (["connected", "missing"], ["connected"])
    harness.poll("rack1", 0)
    harness.wait(MISSING_WITHIN_MS + 1)
    assert harness.bot_events("rack1") == ["connected", "missing", "missing"]


@pytest.mark.parametrize("phase_ms", [0, 1, SWEEP_MS // 2, SWEEP_MS - 1])
def test_a_silent_bot_is_marked_missing_within_seventy_seconds(harness: LifecycleHarness, phase_ms: int) -> None:
    harness.sweep()
    harness.wait(MISSING_WITHIN_MS)
    harness.hello("rack1")
    heard = harness.now
    harness.advance(phase_ms)
    while harness.bot_events("rack1") == ["connected"]:
        assert harness.now <= heard + MISSING_WITHIN_MS
        harness.sweep()
        harness.advance(SWEEP_MS)
    marked = harness.now - SWEEP_MS
    assert LOST_MS < marked - heard <= 70_000


def test_only_a_live_bot_is_capacity(harness: LifecycleHarness) -> None:
    slices = [{"dimensions": {"pool": "lab"}, "wait_for_capacity": False}, {"dimensions": {"pool": "default"}}]
    harness.sweep()
    harness.wait(MISSING_WITHIN_MS)
    harness.hello("lab1", pool="lab")
    harness.wait(LOST_MS)

    def chosen() -> int:
        return harness.task(harness.submit(graph(a=node(slices=slices)))["a"]).life.slice_index

    assert chosen() == 0
    harness.wait(SWEEP_MS)
    assert (harness.bot_events("lab1"), chosen()) == (["connected", "missing"], 1)
    harness.poll("lab1", 0)
    assert chosen() == 0
    harness.goodbye("lab1")
    assert chosen() == 1


def test_no_bot_is_missing_because_the_service_was_down(harness: LifecycleHarness) -> None:
    harness.sweep()
    harness.wait(MISSING_WITHIN_MS)
    harness.hello("rack1")
    harness.advance(3_600_000)
    harness.wait(LOST_MS - SWEEP_MS)
    assert harness.bot_events("rack1") == ["connected"]
    harness.wait(3 * SWEEP_MS)
    assert harness.bot_events("rack1") == ["connected", "missing"]


def test_a_task_that_was_lost_and_ended_elsewhere_is_done(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.hello("rack2")
    harness.sweep()
    harness.claim("rack1")
    harness.wait(LOST_MS, awake=["rack2"])
    assert harness.end("rack2", harness.claim("rack2")[0]) == Done(labels["a"], State.SUCCESSFUL)
    assert harness.graph_state(labels) == "finished"
