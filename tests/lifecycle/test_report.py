"""Reports: each is matched to its lease, and costs at most once."""

import msgspec

from taskyard.core.states import GraphState, Reason, Signal, State
from taskyard.lifecycle.commands import Code, Done, Refusal, Report
from taskyard.lifecycle.poll import PollOutcome
from tests.lifecycle.counting_store import CountingStore
from tests.lifecycle.graphs import chain, graph, node
from tests.lifecycle.harness import LifecycleHarness


def test_a_chain_runs_in_order_and_finishes_its_graph(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a", "b", "c"))
    harness.hello("rack1")
    assert [harness.run("rack1", labels) for _ in range(4)] == [["a"], ["b"], ["c"], []]
    assert harness.state_names(labels) == {"a": "successful", "b": "successful", "c": "successful"}
    assert harness.states_passed(labels.graph) == ["running", "finished"]
    assert harness.states_passed(labels["b"]) == ["pending", "waiting", "running", "successful"]


def test_a_repeated_result_is_an_echo_and_a_different_one_is_refused(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    assert harness.end("rack1", lease) == Done(labels["a"], State.SUCCESSFUL)
    events = harness.graph(labels.graph).events
    assert harness.end("rack1", lease) == Done(labels["a"], State.SUCCESSFUL, echo=True)
    refused = harness.fail("rack1", lease)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.LEASE_LOST
    assert harness.graph(labels.graph).events == events


def test_a_repeated_failure_costs_one_rerun(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns=1)))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    assert harness.fail("rack1", lease) == Done(labels["a"], State.PENDING)
    assert harness.fail("rack1", lease) == Done(labels["a"], State.WAITING, echo=True)
    assert harness.task(labels["a"]).life.reruns_used == 1
    assert harness.fail("rack1", harness.claim("rack1")[0]) == Done(labels["a"], State.FAILED)
    assert harness.why(labels["a"]) == (State.FAILED, Reason.EXIT_CODE)


def test_a_poll_that_fails_and_claims_again_may_be_repeated(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns=1)))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    failed = (Report(lease.task, lease.attempt, lease.fence, Signal.FAIL, exit_code=1),)
    first, again = (harness.poll("rack1", poll="p", reports=failed) for _ in range(2))
    assert isinstance(first, PollOutcome)
    assert isinstance(again, PollOutcome)
    assert (again.leases, again.reports) == (first.leases, (Done(lease.task, State.RUNNING, echo=True),))
    other = harness.end("rack1", lease)
    assert isinstance(other, Refusal)
    assert other.code is Code.LEASE_LOST
    assert (harness.state_names(labels), harness.task(labels["a"]).life.attempt) == ({"a": "running"}, 2)


def test_a_late_report_is_refused_and_changes_nothing(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns=1)))
    harness.hello("rack1")
    first = harness.claim("rack1")[0]
    harness.fail("rack1", first)
    second = harness.claim("rack1")[0]
    before = harness.task(labels["a"])
    refused = harness.end("rack1", first)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.LEASE_LOST
    assert "it is running (attempt 2, bot rack1)" in refused.text
    assert harness.task(labels["a"]) == before
    assert harness.end("rack1", second) == Done(labels["a"], State.SUCCESSFUL)


def test_a_report_of_another_bot_or_another_fence_is_refused(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.hello("rack2")
    lease = harness.claim("rack1")[0]
    stranger = harness.end("rack2", lease)
    forged = harness.poll("rack1", 0, reports=(Report(lease.task, lease.attempt, lease.fence + 1, Signal.SUCCEED),))
    unknown = harness.poll("rack1", 0, reports=(Report(1, 1, 1, Signal.SUCCEED),))
    assert isinstance(stranger, Refusal)
    assert isinstance(forged, PollOutcome)
    assert isinstance(unknown, PollOutcome)
    assert [one.code for one in (*forged.reports, *unknown.reports) if isinstance(one, Refusal)] == [
        Code.LEASE_LOST,
        Code.NOT_FOUND,
    ]
    assert harness.state_names(labels) == {"a": "running"}


def test_a_failure_is_tried_again_after_a_growing_pause(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns={"count": 2, "delay": "10s", "factor": 3})))
    harness.hello("rack1")
    harness.fail("rack1", harness.claim("rack1")[0])
    assert harness.task(labels["a"]).due_ms == harness.now + 10_000
    assert harness.claim("rack1") == ()
    harness.wait(10_000, awake=["rack1"])
    harness.fail("rack1", harness.claim("rack1")[0])
    assert harness.task(labels["a"]).due_ms == harness.now + 30_000
    harness.wait(30_000, awake=["rack1"])
    assert harness.fail("rack1", harness.claim("rack1")[0]) == Done(labels["a"], State.FAILED)


def test_only_the_named_exit_codes_are_tried_again(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns={"count": 5, "exit_codes": [75]})))
    harness.hello("rack1")
    assert harness.end("rack1", harness.claim("rack1")[0], Signal.FAIL, exit_code=75) == Done(
        labels["a"], State.PENDING
    )
    assert harness.fail("rack1", harness.claim("rack1")[0]) == Done(labels["a"], State.FAILED)


def test_why_an_attempt_failed_is_kept_as_the_bot_says(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.end("rack1", harness.claim("rack1")[0], Signal.FAIL, reason=Reason.TIMED_OUT)
    assert harness.why(labels["a"]) == (State.FAILED, Reason.TIMED_OUT)


def test_a_bot_that_gives_an_attempt_back_costs_a_retry_not_a_rerun(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(reruns=1)))
    harness.hello("rack1")
    assert harness.end("rack1", harness.claim("rack1")[0], Signal.LOSE) == Done(labels["a"], State.PENDING)
    life = harness.task(labels["a"]).life
    assert (life.reruns_used, life.retries_used) == (0, 1)


def test_one_batch_may_report_the_same_task_twice(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    report = Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED, result=msgspec.Raw(b'{"x":1}'))
    answer = harness.poll("rack1", 0, reports=(report, report))
    assert isinstance(answer, PollOutcome)
    assert answer.reports == (
        Done(labels["a"], State.SUCCESSFUL),
        Done(labels["a"], State.SUCCESSFUL, echo=True),
    )
    assert harness.graph(labels.graph).state is GraphState.FINISHED


def test_a_poll_locks_its_bot_before_its_tasks_as_a_new_session_does(harness: LifecycleHarness) -> None:
    harness.submit(chain("a"))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    harness.store = counting = CountingStore(harness.store)
    harness.end("rack1", lease)
    assert counting.statements.index("lock_callers") < counting.statements.index("lock_tasks"), (
        "else the two wait for each other"
    )
