"""How attempts end: what a bot says is matched to its lease, and costs at most once."""

import msgspec

from taskyard.core.states import GraphState, Reason, Signal, State
from taskyard.lifecycle.commands import Code, Done, Refusal, Report
from taskyard.lifecycle.poll import PollOutcome
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.tallied import Tallied
from tests.lifecycle.yard import chain


def test_a_chain_runs_in_order_and_finishes_its_graph(yard: Grounds) -> None:
    labels = yard.submit(chain("a", "b", "c"))
    yard.hello("rack1")
    assert [yard.run("rack1", labels) for _ in range(4)] == [["a"], ["b"], ["c"], []]
    assert yard.words(labels) == {"a": "successful", "b": "successful", "c": "successful"}
    assert yard.story(labels.graph) == ["running", "finished"]
    assert yard.story(labels["b"]) == ["pending", "waiting", "running", "successful"]


def test_a_repeated_result_is_an_echo_and_a_different_one_is_refused(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    assert yard.end("rack1", lease) == Done(labels["a"], State.SUCCESSFUL)
    events = yard.graph(labels.graph).events
    assert yard.end("rack1", lease) == Done(labels["a"], State.SUCCESSFUL, echo=True)
    refused = yard.fail("rack1", lease)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.LEASE_LOST
    assert yard.graph(labels.graph).events == events


def test_a_repeated_failure_costs_one_rerun(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns=1)))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    assert yard.fail("rack1", lease) == Done(labels["a"], State.PENDING)
    assert yard.fail("rack1", lease) == Done(labels["a"], State.WAITING, echo=True)
    assert yard.task(labels["a"]).life.reruns_used == 1
    assert yard.fail("rack1", yard.claim("rack1")[0]) == Done(labels["a"], State.FAILED)
    assert yard.why(labels["a"]) == (State.FAILED, Reason.EXIT_CODE)


def test_a_poll_that_fails_and_claims_again_may_be_repeated(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns=1)))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    failed = (Report(lease.task, lease.attempt, lease.fence, Signal.FAIL, exit_code=1),)
    first, again = (yard.poll("rack1", poll="p", reports=failed) for _ in range(2))
    assert isinstance(first, PollOutcome)
    assert isinstance(again, PollOutcome)
    assert (again.leases, again.reports) == (first.leases, (Done(lease.task, State.RUNNING, echo=True),))
    other = yard.end("rack1", lease)
    assert isinstance(other, Refusal)
    assert other.code is Code.LEASE_LOST
    assert (yard.words(labels), yard.task(labels["a"]).life.attempt) == ({"a": "running"}, 2)


def test_a_late_report_is_refused_and_changes_nothing(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns=1)))
    yard.hello("rack1")
    first = yard.claim("rack1")[0]
    yard.fail("rack1", first)
    second = yard.claim("rack1")[0]
    before = yard.task(labels["a"])
    refused = yard.end("rack1", first)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.LEASE_LOST
    assert "it is running (attempt 2, bot rack1)" in refused.text
    assert yard.task(labels["a"]) == before
    assert yard.end("rack1", second) == Done(labels["a"], State.SUCCESSFUL)


def test_a_report_of_another_bot_or_another_fence_is_refused(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.hello("rack2")
    lease = yard.claim("rack1")[0]
    stranger = yard.end("rack2", lease)
    forged = yard.poll("rack1", 0, reports=(Report(lease.task, lease.attempt, lease.fence + 1, Signal.SUCCEED),))
    unknown = yard.poll("rack1", 0, reports=(Report(1, 1, 1, Signal.SUCCEED),))
    assert isinstance(stranger, Refusal)
    assert isinstance(forged, PollOutcome)
    assert isinstance(unknown, PollOutcome)
    assert [one.code for one in (*forged.reports, *unknown.reports) if isinstance(one, Refusal)] == [
        Code.LEASE_LOST,
        Code.NOT_FOUND,
    ]
    assert yard.words(labels) == {"a": "running"}


def test_a_failure_is_tried_again_after_a_growing_pause(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns={"count": 2, "delay": "10s", "factor": 3})))
    yard.hello("rack1")
    yard.fail("rack1", yard.claim("rack1")[0])
    assert yard.task(labels["a"]).due_ms == yard.now + 10_000
    assert yard.claim("rack1") == ()
    yard.wait(10_000, awake=["rack1"])
    yard.fail("rack1", yard.claim("rack1")[0])
    assert yard.task(labels["a"]).due_ms == yard.now + 30_000
    yard.wait(30_000, awake=["rack1"])
    assert yard.fail("rack1", yard.claim("rack1")[0]) == Done(labels["a"], State.FAILED)


def test_only_the_named_exit_codes_are_tried_again(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns={"count": 5, "exit_codes": [75]})))
    yard.hello("rack1")
    assert yard.end("rack1", yard.claim("rack1")[0], Signal.FAIL, exit_code=75) == Done(labels["a"], State.PENDING)
    assert yard.fail("rack1", yard.claim("rack1")[0]) == Done(labels["a"], State.FAILED)


def test_why_an_attempt_failed_is_kept_as_the_bot_says(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.end("rack1", yard.claim("rack1")[0], Signal.FAIL, reason=Reason.TIMED_OUT)
    assert yard.why(labels["a"]) == (State.FAILED, Reason.TIMED_OUT)


def test_a_bot_that_gives_an_attempt_back_costs_a_retry_not_a_rerun(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(reruns=1)))
    yard.hello("rack1")
    assert yard.end("rack1", yard.claim("rack1")[0], Signal.LOSE) == Done(labels["a"], State.PENDING)
    life = yard.task(labels["a"]).life
    assert (life.reruns_used, life.retries_used) == (0, 1)


def test_one_batch_may_tell_the_same_task_twice(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    report = Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED, result=msgspec.Raw(b'{"x":1}'))
    answer = yard.poll("rack1", 0, reports=(report, report))
    assert isinstance(answer, PollOutcome)
    assert answer.reports == (
        Done(labels["a"], State.SUCCESSFUL),
        Done(labels["a"], State.SUCCESSFUL, echo=True),
    )
    assert yard.graph(labels.graph).state is GraphState.FINISHED


def test_a_poll_locks_its_bot_before_its_tasks_as_a_new_session_does(yard: Grounds) -> None:
    yard.submit(chain("a"))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    yard.store = tallied = Tallied(yard.store)
    yard.end("rack1", lease)
    assert tallied.asked.index("lock_callers") < tallied.asked.index("lock_tasks"), "else the two wait for each other"
