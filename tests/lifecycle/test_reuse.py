"""Idempotent tasks: a known result is reused, and of equal tasks under way one runs."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from taskyard.core.fleet import LEASE_MS
from taskyard.core.reuse import REUSE_WINDOW_MS
from taskyard.core.states import Reason, Signal, State
from taskyard.lifecycle import reuse
from taskyard.lifecycle.admission.pools import set_pool
from taskyard.lifecycle.commands import Done, Lease, Report
from taskyard.lifecycle.doctor.check import doctor
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted, submit
from taskyard.lifecycle.transaction import PROPAGATED_MAX
from taskyard.store.repo.admission import PoolRow
from taskyard.store.repo.tasks import UNDIGESTED_MAX, ReusedAttempt
from taskyard.views.explain import explain_task
from tests.engine.harness import execute_raw
from tests.lifecycle.graphs import graph, node, noop
from tests.lifecycle.harness import Labels, LifecycleHarness

P, W, OK, BAD = State.PENDING, State.WAITING, State.SUCCESSFUL, State.FAILED
#: More followers than one transaction serves.
MANY = PROPAGATED_MAX + 300


def same(*requires: str, **fields: Any) -> dict[str, object]:
    """A node of an idempotent task."""
    return node(*requires, **{"idempotent": True} | fields)


@pytest.fixture
def bot(harness: LifecycleHarness) -> str:
    """A bot that takes whatever there is."""
    harness.hello("rack1", slots=256)
    return "rack1"


def submit_for(harness: LifecycleHarness, submitter: str, document: object) -> Labels:
    """Submit a graph for another submitter."""
    new = harness.new_graph(document)
    other = replace(new, new_tasks=replace(new.new_tasks, submitter=submitter))
    answer = harness.do(lambda transaction: submit(transaction, [other]))[0]
    assert isinstance(answer, Submitted)
    return Labels(answer.graph, dict(other.new_tasks.ids))


def succeed(harness: LifecycleHarness, bot: str, lease: Lease, result: object = None) -> None:
    """End an attempt well, with a result."""
    body = msgspec.Raw(b"" if result is None else msgspec.json.encode(result))
    report = Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED, result=body)
    answer = harness.poll(bot, 0, reports=(report,))
    assert isinstance(answer, PollOutcome)
    assert isinstance(answer.reports[0], Done)


def run(harness: LifecycleHarness, bot: str, labels: Labels, **results: object) -> list[str]:
    """Run everything that is ready; name what was run."""
    leases = harness.start(bot, labels)
    for label, lease in leases.items():
        succeed(harness, bot, lease, results.get(label))
    return sorted(leases)


def why(harness: LifecycleHarness, id: int) -> tuple[State, str]:
    task = harness.task(id)
    return task.state, task.reason


def result_of(harness: LifecycleHarness, id: int) -> str | None:
    with harness.store.read() as repo:
        return repo.read.last_results([id]).get(id)


def sources(harness: LifecycleHarness, *ids: int) -> dict[int, int]:
    with harness.store.read() as repo:
        return {id: source.task for id, source in repo.reuse.sources(ids).items()}


def rows_of(harness: LifecycleHarness, id: int) -> dict[str, int]:
    """Count the rows that a task that ran has, by table."""
    with harness.store.read() as repo:
        return {
            "attempts": len(repo.attempts.of(id)),
            "output": len(repo.output.sizes(id)),
            "stats": len(repo.output.stats(id)),
            "progress": len(repo.output.progress([id])),
            "results of attempts": len([number for number in repo.read.results(id) if number]),
            "holds": len(repo.admission.holds_of([id])),
        }


def checked(harness: LifecycleHarness) -> None:
    with harness.store.read() as repo:
        assert doctor(repo, harness.now) == []


@dataclass(frozen=True)
class Seen:
    """A caller who may see all graphs, or none."""

    graphs: bool

    def graph(self, graph: int) -> bool:
        return self.graphs or graph < 0

    def bots_of(self, pools: Collection[str]) -> bool:
        return self.graphs or not pools


NOTHING = dict.fromkeys(("attempts", "output", "stats", "progress", "results of attempts", "holds"), 0)


# A known result.


def test_a_known_result_is_reused_at_once(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same()))
    run(harness, bot, first, a={"size": 7})
    second = harness.submit(graph(b=same()))
    assert why(harness, second["b"]) == (OK, Reason.REUSED)
    assert harness.graph_state(second) == "finished"
    assert harness.claim(bot) == ()
    assert result_of(harness, second["b"]) == '{"size":7}'
    with harness.store.read() as repo:
        assert repo.reuse.sources([second["b"]]) == {second["b"]: ReusedAttempt(first["a"], first.graph, 1, 0)}


def test_a_task_that_reuses_a_result_leaves_no_trace_of_a_run(harness: LifecycleHarness, bot: str) -> None:
    run(harness, bot, harness.submit(graph(a=same())))
    second = harness.submit(graph(a=same(mutexes=[{"key": "k"}])))
    assert harness.states_passed(second["a"]) == ["pending", "successful"]
    assert rows_of(harness, second["a"]) == NOTHING
    assert harness.task(second["a"]).life.attempt == 0
    checked(harness)


def test_a_task_that_no_bot_can_run_leaves_no_trace_of_a_run(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=same(slices=[{"dimensions": {"gpu": "h100"}, "wait_for_capacity": False}])))
    assert why(harness, labels["a"]) == (State.ERROR, Reason.NO_BOT)
    assert rows_of(harness, labels["a"]) == NOTHING
    checked(harness)


def test_no_bot_is_needed_for_a_known_result(harness: LifecycleHarness, bot: str) -> None:
    slices = [{"wait_for_capacity": False}]
    run(harness, bot, harness.submit(graph(a=same(slices=slices))))
    harness.goodbye(bot)
    assert harness.state_names(harness.submit(graph(a=same(slices=slices)))) == {"a": "successful"}


@pytest.mark.parametrize(("ago_ms", "expected"), [(REUSE_WINDOW_MS - 1, "successful"), (REUSE_WINDOW_MS, "waiting")])
def test_age_counts_from_the_finish(harness: LifecycleHarness, bot: str, ago_ms: int, expected: str) -> None:
    first = harness.submit(graph(a=same()))
    lease = harness.claim(bot)[0]
    harness.advance(LEASE_MS // 2)  # it takes long
    succeed(harness, bot, lease)
    harness.advance(ago_ms - 1)  # a submission takes a millisecond
    assert harness.state_names(harness.submit(graph(a=same()))) == {"a": expected}
    assert harness.state_names(first) == {"a": "successful"}


def test_a_pool_has_its_own_window(harness: LifecycleHarness, bot: str) -> None:
    harness.do(lambda transaction: reuse.set_policy(transaction, "default", 1_000, False, "ann"))
    run(harness, bot, harness.submit(graph(a=same())))
    harness.advance(998)
    assert harness.state_names(harness.submit(graph(a=same()))) == {"a": "successful"}
    assert harness.state_names(harness.submit(graph(a=same()))) == {"a": "waiting"}
    assert [note for _, action, note in harness.audits(0) if action == "set_reuse"] == ["default: for 1s"]


def test_a_longer_window_finds_the_newest_result_again(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same()))
    run(harness, bot, first)
    harness.advance(REUSE_WINDOW_MS)
    second = harness.submit(graph(a=same()))
    harness.fail(bot, harness.claim(bot)[0])  # it ran, and replaces nothing
    harness.do(lambda transaction: reuse.set_policy(transaction, "default", 2 * REUSE_WINDOW_MS, False, "ann"))
    third = harness.submit(graph(a=same()))
    assert sources(harness, second["a"], third["a"]) == {third["a"]: first["a"]}


def test_with_a_window_of_zero_nothing_is_reused_and_no_task_waits_for_another(
    harness: LifecycleHarness, bot: str
) -> None:
    harness.do(lambda transaction: reuse.set_policy(transaction, "default", 0, False, "ann"))
    labels = harness.submit(graph(a=same(), b=same()))
    assert run(harness, bot, labels) == ["a", "b"]
    assert harness.state_names(harness.submit(graph(c=same()))) == {"c": "waiting"}


def test_a_task_that_failed_is_never_reused(harness: LifecycleHarness, bot: str) -> None:
    harness.submit(graph(a=same()))
    harness.fail(bot, harness.claim(bot)[0])
    assert harness.state_names(harness.submit(graph(a=same()))) == {"a": "waiting"}


def test_the_original_is_named_and_no_chain_outlives_the_window(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same()))
    run(harness, bot, first)
    harness.advance(REUSE_WINDOW_MS // 2)
    second = harness.submit(graph(a=same()))
    harness.advance(REUSE_WINDOW_MS // 2 - 10)
    third = harness.submit(graph(a=same()))
    assert sources(harness, second["a"], third["a"]) == dict.fromkeys((second["a"], third["a"]), first["a"])
    harness.advance(10)
    assert harness.state_names(harness.submit(graph(a=same()))) == {"a": "waiting"}


def test_results_never_leave_their_pool(harness: LifecycleHarness, bot: str) -> None:
    harness.hello("lab1", pool="lab")
    run(harness, bot, harness.submit(graph(a=same())))
    assert harness.state_names(harness.submit(graph(a=same(dimensions={"pool": "lab"})))) == {"a": "waiting"}
    assert harness.state_names(harness.submit(graph(a=same(dimensions={"pool": "default"})))) == {"a": "successful"}


def test_results_of_others_are_reused_only_where_the_pool_says_so(harness: LifecycleHarness, bot: str) -> None:
    run(harness, bot, submit_for(harness, "ann", graph(a=same())))
    other = submit_for(harness, "bob", graph(a=same()))
    assert run(harness, bot, other) == ["a"]
    harness.do(lambda transaction: reuse.set_policy(transaction, "default", REUSE_WINDOW_MS, True, "ann"))
    run(harness, bot, submit_for(harness, "cid", graph(a=same())))
    assert harness.state_names(submit_for(harness, "dan", graph(a=same()))) == {"a": "successful"}


def test_only_idempotent_tasks_are_reused_and_reuse(harness: LifecycleHarness, bot: str) -> None:
    run(harness, bot, harness.submit(graph(a=node())))
    run(harness, bot, harness.submit(graph(a=same())))
    assert harness.state_names(harness.submit(graph(a=node()))) == {"a": "waiting"}


# What a task receives.


def test_a_chain_is_reused_as_long_as_its_results_are_the_same(harness: LifecycleHarness, bot: str) -> None:
    document = graph(build=node(), test=same("build"))
    first = harness.submit(document)
    run(harness, bot, first, build="v1")
    run(harness, bot, first)
    second = harness.submit(document)
    assert run(harness, bot, second, build="v1") == ["build"]
    assert harness.state_names(second) == {"build": "successful", "test": "successful"}
    third = harness.submit(document)
    assert run(harness, bot, third, build="v2") == ["build"]
    assert harness.state_names(third) == {"build": "successful", "test": "waiting"}


@pytest.mark.parametrize("length", [UNDIGESTED_MAX - 2, UNDIGESTED_MAX - 1, 100_000])
def test_results_of_any_length_are_compared(harness: LifecycleHarness, bot: str, length: int) -> None:
    document = graph(build=node(), test=same("build"))
    first = harness.submit(document)
    run(harness, bot, first, build="x" * length)
    run(harness, bot, first)
    equal = harness.submit(document)
    run(harness, bot, equal, build="x" * length)
    other = harness.submit(document)
    run(harness, bot, other, build="x" * (length - 1) + "y")
    assert harness.state_names(other)["test"] == "waiting"
    assert harness.state_names(equal)["test"] == "successful"


def test_a_reused_task_counts_as_its_original_where_its_id_is_named(harness: LifecycleHarness, bot: str) -> None:
    named = {"command": ["get", {"$subs": "taskId:build"}]}
    document = graph(build=same(), test=same("build", payload=named))
    first = harness.submit(document)
    run(harness, bot, first)
    run(harness, bot, first)
    assert harness.state_names(harness.submit(document)) == {"build": "successful", "test": "successful"}
    fresh = harness.submit(graph(build=node(), test=same("build", payload=named)))
    run(harness, bot, fresh)
    assert harness.state_names(fresh) == {"build": "successful", "test": "waiting"}


def test_a_task_is_not_known_by_what_it_received_too_late(harness: LifecycleHarness, bot: str) -> None:
    harness.hello("slow1", slow="yes")
    document = graph(
        fast=node(), slow=node(dimensions={"slow": "yes"}), any=same("fast", "slow", join="any"),
    )  # fmt: skip
    first = harness.submit(document)
    run(harness, bot, first, fast=1)
    lease = harness.start(bot, first)["any"]
    succeed(harness, "slow1", harness.claim("slow1")[0], 2)
    succeed(harness, bot, lease)
    second = harness.submit(document)
    run(harness, bot, second, fast=1)
    assert harness.state_names(second) == {"fast": "successful", "slow": "waiting", "any": "waiting"}


def test_a_handler_that_reuses_a_result_has_handled_the_failure(harness: LifecycleHarness, bot: str) -> None:
    document = graph(a=node(), page=same(failure=["a"]))
    first = harness.submit(document)
    harness.run(bot, first, "a")
    harness.run(bot, first)
    second = harness.submit(document)
    harness.run(bot, second, "a")
    assert harness.graph_state(first) == harness.graph_state(second) == "finished"
    assert why(harness, second["page"]) == (OK, Reason.REUSED)
    checked(harness)


# In flight.


def test_of_two_equal_tasks_one_runs_and_both_have_the_result(harness: LifecycleHarness, bot: str) -> None:
    first, second = harness.submit(graph(a=same())), harness.submit(graph(a=same(), b=node("a")))
    assert why(harness, second["a"]) == (P, Reason.DUPLICATE_OF)
    leases = harness.claim(bot, 10)
    assert [lease.task for lease in leases] == [first["a"]]
    succeed(harness, bot, leases[0], {"n": 1})
    assert harness.state_names(second) == {"a": "successful", "b": "waiting"}
    assert result_of(harness, second["a"]) == '{"n":1}'
    assert sources(harness, second["a"]) == {second["a"]: first["a"]}
    assert rows_of(harness, second["a"]) == NOTHING
    checked(harness)


def test_two_equal_tasks_of_one_graph_run_once(harness: LifecycleHarness, bot: str) -> None:
    labels = harness.submit(graph(a=same(), b=same(), c=same(priority=1)))
    assert run(harness, bot, labels) == ["c"]  # the first by priority leads
    assert harness.graph_state(labels) == "finished"
    assert sources(harness, *labels.values()) == dict.fromkeys((labels["a"], labels["b"]), labels["c"])


def test_why_names_the_task_that_runs(harness: LifecycleHarness, bot: str) -> None:
    first, second = harness.submit(graph(build=same())), harness.submit(graph(again=same()))
    with harness.store.read() as repo:
        record = repo.tasks.read([second["again"]])[0]
        said, unseen = (explain_task(repo, record, harness.now, Seen(graphs)).why for graphs in (True, False))
    assert said.reason == unseen.reason == "duplicate_of"
    equal = f"build (task {first['build']:016x} of graph {first.graph:016x}, waiting)"
    assert said.sentence == f"again is pending: {equal} does the same work, and its result will be reused"
    assert "a task that you may not see does the same work" in unseen.sentence


def test_a_follower_holds_and_stakes_nothing(harness: LifecycleHarness, bot: str) -> None:
    harness.do(lambda transaction: set_pool(transaction, PoolRow("default", 1, False), "ann"))
    first, second = harness.submit(graph(a=same())), harness.submit(graph(a=same()))
    assert not harness.task(second["a"]).needs_admission
    with harness.store.read() as repo:
        assert repo.admission.contenders_among([first["a"], second["a"]]) != []
        assert repo.admission.contenders_among([second["a"]]) == []
    checked(harness)


def test_a_pool_that_gets_a_capacity_leaves_followers_alone(harness: LifecycleHarness, bot: str) -> None:
    harness.submit(graph(a=same()))
    second, later = harness.submit(graph(a=same())), harness.submit(graph(b=same(not_before="1h")))
    harness.do(lambda transaction: set_pool(transaction, PoolRow("default", 1, False), "ann"))
    assert not harness.task(second["a"]).needs_admission
    assert not harness.task(later["b"]).needs_admission
    checked(harness)


def test_a_follower_keeps_its_own_deadline(harness: LifecycleHarness, bot: str) -> None:
    first, second = harness.submit(graph(a=same())), harness.submit(graph(a=same(deadline="10s")))
    lease = harness.claim(bot)[0]
    harness.wait(10_000, [bot])
    assert why(harness, second["a"]) == (State.ERROR, Reason.DEADLINE)
    succeed(harness, bot, lease)
    assert harness.state_names(first) == {"a": "successful"}
    assert harness.state_names(second) == {"a": "error"}


def test_a_follower_is_canceled_alone(harness: LifecycleHarness, bot: str) -> None:
    first, second, third = (harness.submit(graph(a=same())) for _ in range(3))
    harness.cancel(second["a"])
    run(harness, bot, first)
    assert [harness.state_names(one)["a"] for one in (first, second, third)] == ["successful", "canceled", "successful"]


@pytest.mark.parametrize("end", ["fail", "cancel", "deadline", "lose"])
def test_any_other_end_of_the_leader_frees_the_oldest_follower(harness: LifecycleHarness, bot: str, end: str) -> None:
    fields = {"deadline": "30s"} if end == "deadline" else {"retries": 0}
    first, second, third = (harness.submit(graph(a=same(**more))) for more in (fields, {}, {}))
    lease = harness.claim(bot)[0]
    match end:
        case "fail":
            harness.fail(bot, lease)
        case "cancel":
            harness.cancel(first["a"])
            harness.end(bot, lease)
        case "deadline":
            harness.end(bot, lease, Signal.DEADLINE)
        case _:
            harness.end(bot, lease, Signal.LOSE)
    assert [harness.task(one["a"]).state for one in (second, third)] == [W, P]
    assert why(harness, third["a"]) == (P, Reason.DUPLICATE_OF)
    run(harness, bot, second)
    assert sources(harness, third["a"]) == {third["a"]: second["a"]}


def test_a_leader_canceled_before_it_ran_frees_the_oldest_follower(harness: LifecycleHarness, bot: str) -> None:
    first, second = harness.submit(graph(a=same())), harness.submit(graph(a=same()))
    harness.cancel(graph=first.graph)
    assert harness.task(second["a"]).state is W


def test_a_leader_that_is_tried_again_keeps_its_followers(harness: LifecycleHarness, bot: str) -> None:
    harness.hello("rack2")
    first, second = harness.submit(graph(a=same() | {"reruns": 1})), harness.submit(graph(a=same()))
    harness.end(bot, harness.claim(bot)[0], Signal.LOSE)
    assert why(harness, second["a"]) == (P, Reason.DUPLICATE_OF)
    harness.fail("rack2", harness.claim("rack2")[0])
    assert why(harness, second["a"]) == (P, Reason.DUPLICATE_OF)
    run(harness, "rack2", first)
    assert harness.state_names(first) == harness.state_names(second) == {"a": "successful"}


def test_a_leader_canceled_with_its_followers_frees_another_one(harness: LifecycleHarness, bot: str) -> None:
    labels = harness.submit(graph(a=same(), b=same(), c=same()))
    other = harness.submit(graph(d=same()))
    harness.cancel(graph=labels.graph)
    assert set(harness.state_names(labels).values()) == {"canceled"}
    assert harness.state_names(other) == {"d": "waiting"}


def test_a_freed_follower_that_no_bot_can_run_frees_the_next(harness: LifecycleHarness, bot: str) -> None:
    harness.submit(graph(a=same()))
    impatient = same(slices=[{"wait_for_capacity": False}])
    second, third = harness.submit(graph(a=impatient)), harness.submit(graph(a=same()))
    lease = harness.claim(bot)[0]
    assert harness.task(second["a"]).state is P
    harness.fail(bot, lease)
    harness.run(bot, second, "a")
    assert harness.task(third["a"]).state is W
    fourth, fifth = harness.submit(graph(a=impatient)), harness.submit(graph(a=same()))
    harness.goodbye(bot)
    harness.cancel(third["a"])
    assert why(harness, fourth["a"]) == (State.ERROR, Reason.NO_BOT)
    assert harness.task(fifth["a"]).state is W
    checked(harness)


@pytest.mark.parametrize("succeeds", [True, False])
def test_many_followers_are_served_in_pages(harness: LifecycleHarness, bot: str, succeeds: bool) -> None:
    first = harness.submit(graph(a=same()))
    many = harness.submit({"tasks": {f"t{place}": same() for place in range(MANY)}})
    assert harness.count_states(many) == {"pending": MANY}
    (lease,) = harness.claim(bot, 10)
    if not succeeds:
        harness.fail(bot, lease)
        assert harness.count_states(many) == {"pending": MANY - 1, "waiting": 1}
        (lease,) = harness.claim(bot, 10)
    succeed(harness, bot, lease, {"n": 1})
    assert harness.count_states(many)["pending"] > 0
    assert harness.graph_state(many) == "running"
    assert harness.run_continuations() > 0
    assert harness.count_states(many) == {"successful": MANY}
    assert harness.graph_state(many) == "finished"
    assert first.graph != many.graph
    checked(harness)


def test_a_long_result_makes_smaller_pages(harness: LifecycleHarness, bot: str) -> None:
    harness.submit(graph(a=same()))
    many = harness.submit({"tasks": {f"t{place}": same() for place in range(40)}})
    succeed(harness, bot, harness.claim(bot)[0], "x" * 200_000)
    served = harness.count_states(many)["successful"]
    assert 0 < served < 40
    harness.run_continuations()
    assert harness.count_states(many) == {"successful": 40}
    late = harness.submit({"tasks": {f"t{place}": same() for place in range(40)}})
    assert 0 < harness.count_states(late)["successful"] < 40
    harness.run_continuations()
    assert harness.count_states(late) == {"successful": 40}
    checked(harness)


def test_many_files_make_smaller_pages(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same()))
    many = harness.submit({"tasks": {f"t{place}": same() for place in range(40)}})
    files = [(first["a"], 1, f"f{number}", "default", "1" * 64, "x", 1, "") for number in range(500)]
    lease = harness.claim(bot)[0]
    harness.do(lambda transaction: transaction.repo.files.set_artifacts(files))
    succeed(harness, bot, lease)
    assert 0 < harness.count_states(many)["successful"] < 20
    harness.run_continuations()
    assert harness.count_states(many) == {"successful": 40}
    with harness.store.read() as repo:
        assert {len(repo.files.artifacts(id, 0, "", 1_000)) for id in many.values()} == {500}
    checked(harness)


def test_many_known_results_are_reused_in_pages(harness: LifecycleHarness, bot: str) -> None:
    run(harness, bot, harness.submit(graph(a=same())))
    hub = {f"t{place}": same("hub", payload={"command": ["true"]}) for place in range(MANY)}
    many = harness.submit({"tasks": {"hub": node(payload={"command": ["hub"]}), **hub}})
    run(harness, bot, many)
    harness.run_continuations()
    assert harness.count_states(many) == {"successful": MANY + 1}
    checked(harness)


def test_as_many_known_results_as_dependents_fit_into_one_transaction(harness: LifecycleHarness, bot: str) -> None:
    run(harness, bot, harness.submit(graph(a=same())))
    hub = {f"t{place}": same("hub") for place in range(PROPAGATED_MAX)}
    many = harness.submit({"tasks": {"hub": node(payload={"command": ["hub"]}), **hub}})
    run(harness, bot, many)
    assert harness.count_states(many) == {"successful": PROPAGATED_MAX + 1}


def test_a_leader_that_is_canceled_while_its_followers_wait_for_their_page(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same()))
    many = harness.submit({"tasks": {f"t{place}": same() for place in range(MANY)}})
    succeed(harness, bot, harness.claim(bot)[0])
    harness.cancel(graph=many.graph)
    harness.run_continuations()
    assert set(harness.count_states(many)) == {"successful", "canceled"}
    assert harness.graph_state(many) == "canceled"
    assert harness.graph_state(first) == "finished"
    checked(harness)


# Slices and starts.


def two_slices(**first: object) -> list[dict[str, object]]:
    return [{"dimensions": {"gpu": "h100"}, "expires": "10s", "wait_for_capacity": True} | first, {}]


def test_each_slice_is_looked_up_when_it_becomes_current(harness: LifecycleHarness, bot: str) -> None:
    plain = harness.submit(graph(a=same()))
    run(harness, bot, plain)
    labels = harness.submit(graph(a=same(slices=two_slices())))
    assert harness.task(labels["a"]).state is W
    harness.wait(15_000, [bot])
    assert why(harness, labels["a"]) == (OK, Reason.REUSED)
    assert harness.task(labels["a"]).life.slice_index == 1
    assert sources(harness, labels["a"]) == {labels["a"]: plain["a"]}
    checked(harness)


def test_a_slice_that_no_bot_can_serve_is_passed_by(harness: LifecycleHarness, bot: str) -> None:
    plain = harness.submit(graph(a=same()))
    run(harness, bot, plain)
    labels = harness.submit(graph(a=same(slices=two_slices(wait_for_capacity=False))))
    assert why(harness, labels["a"]) == (OK, Reason.REUSED)
    assert harness.task(labels["a"]).life.slice_index == 1
    checked(harness)


def test_a_leader_that_goes_on_with_another_slice_frees_its_followers(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same(slices=two_slices())))
    second = harness.submit(graph(a=same(dimensions={"gpu": "h100"})))
    assert why(harness, second["a"]) == (P, Reason.DUPLICATE_OF)
    harness.wait(15_000, [bot])
    assert harness.task(first["a"]).life.slice_index == 1
    assert harness.task(second["a"]).state is W
    checked(harness)


def test_a_slice_that_expires_ends_as_expired_when_none_is_left(harness: LifecycleHarness, bot: str) -> None:
    slices = [*two_slices()[:1], {"dimensions": {"gpu": "a100"}, "wait_for_capacity": False}]
    labels = harness.submit(graph(a=same(slices=slices)))
    harness.wait(15_000, [bot])
    assert why(harness, labels["a"]) == (State.ERROR, Reason.EXPIRED)
    checked(harness)


def test_a_task_that_may_not_start_yet_keeps_no_follower_waiting(harness: LifecycleHarness, bot: str) -> None:
    later, now = harness.submit(graph(a=same(not_before="20s"))), harness.submit(graph(a=same()))
    assert harness.task(now["a"]).state is W
    assert run(harness, bot, now) == ["a"]
    assert harness.task(later["a"]).state is P
    harness.wait(20_000, [bot])
    assert why(harness, later["a"]) == (OK, Reason.REUSED)
    checked(harness)


def test_a_task_that_was_put_off_runs_when_nothing_is_known(harness: LifecycleHarness, bot: str) -> None:
    later = harness.submit(graph(a=same(not_before="20s", mutexes=[{"key": "k"}])))
    checked(harness)
    harness.wait(20_000, [bot])
    assert harness.task(later["a"]).needs_admission
    checked(harness)


# Keys that are known when a task is submitted.


def keys_of(harness: LifecycleHarness, labels: Labels) -> list[str]:
    """Name the tasks of a graph that have a key."""
    names = {id: label for label, id in labels.items()}
    with harness.store.read() as repo:
        return sorted(names[task] for _, task in repo.reuse.keys_of(list(names)))


def claim_all(harness: LifecycleHarness, bot: str) -> dict[int, Lease]:
    return {lease.task: lease for lease in harness.claim(bot, 256)}


def test_a_task_that_waits_for_its_prerequisites_keeps_no_equal_task_waiting(
    harness: LifecycleHarness, bot: str
) -> None:
    first = harness.submit(graph(build=node(), a=same("build")))
    assert keys_of(harness, first) == ["a"]
    second = harness.submit(graph(a=same()))
    assert harness.task(second["a"]).state is W
    assert keys_of(harness, first) == []
    leases = claim_all(harness, bot)
    succeed(harness, bot, leases[first["build"]])
    assert why(harness, first["a"]) == (P, Reason.DUPLICATE_OF)
    succeed(harness, bot, leases[second["a"]], 3)
    assert sources(harness, first["a"]) == {first["a"]: second["a"]}
    checked(harness)


def test_a_task_that_is_equal_to_its_dependent_does_not_wait_for_it(harness: LifecycleHarness, bot: str) -> None:
    labels = harness.submit(graph(z=same(), a=same("z", priority=20)))
    assert keys_of(harness, labels) == ["z"]
    assert run(harness, bot, labels) == ["z"]
    assert harness.state_names(labels) == {"z": "successful", "a": "successful"}


@pytest.mark.parametrize("end", ["succeed", "fail", "cancel"])
def test_a_task_that_receives_a_result_has_another_key(harness: LifecycleHarness, bot: str, end: str) -> None:
    first = harness.submit(graph(build=node(), a=same("build")))
    run(harness, bot, first, build="v1")
    second = harness.submit(graph(a=same()))  # it receives nothing
    assert harness.task(second["a"]).state is W
    assert keys_of(harness, first) == ["a"]
    lease = claim_all(harness, bot)[first["a"]]
    if end == "cancel":
        harness.cancel(first["a"])
        harness.end(bot, lease)
    else:
        harness.end(bot, lease, Signal.SUCCEED if end == "succeed" else Signal.FAIL)
    assert keys_of(harness, first) == []
    assert keys_of(harness, second) == ["a"]
    assert harness.task(second["a"]).state is not State.SUCCESSFUL
    checked(harness)


@pytest.mark.parametrize("what", ["graph", "task", "prerequisite", "impossible"])
def test_a_task_that_ends_before_it_could_run_leaves_its_key(harness: LifecycleHarness, bot: str, what: str) -> None:
    on_impossible = "fail" if what == "impossible" else "hold"
    labels = harness.submit(graph(build=node(), a=same("build", on_impossible=on_impossible)))
    match what:
        case "graph":
            harness.cancel(graph=labels.graph)
        case "task":
            harness.cancel(labels["a"])
        case _:
            harness.run(bot, labels, "build")
    ended = harness.task(labels["a"]).state is not State.BLOCKED
    assert keys_of(harness, labels) == ([] if ended else ["a"])
    checked(harness)
    assert harness.state_names(harness.submit(graph(a=same()))) == {"a": "waiting"}
    checked(harness)


def test_a_blocked_task_that_is_deleted_leaves_no_key(harness: LifecycleHarness, bot: str) -> None:
    labels = harness.submit(graph(build=node(), a=same("build")))
    harness.run(bot, labels, "build")
    assert (harness.task(labels["a"]).state, keys_of(harness, labels)) == (State.BLOCKED, ["a"])
    harness.do(lambda transaction: transaction.repo.reuse.forget(list(labels.values())))
    assert keys_of(harness, labels) == []


@pytest.mark.parametrize("shared", [True, False])
def test_what_a_pool_allows_when_a_task_starts_counts(harness: LifecycleHarness, bot: str, shared: bool) -> None:
    first = submit_for(harness, "ann", graph(build=node(), a=same("build")))
    window = REUSE_WINDOW_MS if shared else 0
    harness.do(lambda transaction: reuse.set_policy(transaction, "default", window, shared, "ann"))
    run(harness, bot, first)
    second = submit_for(harness, "bob", graph(a=same()))
    assert harness.task(second["a"]).state is (P if shared else W)
    succeed(harness, bot, claim_all(harness, bot)[first["a"]])
    assert harness.task(second["a"]).state is (OK if shared else State.RUNNING)
    checked(harness)


def test_a_key_is_the_same_before_and_after_what_a_task_receives_is_known(harness: LifecycleHarness, bot: str) -> None:
    harness.hello("rack2", arch="x86_64", pool="default")
    payload = {"command": ["make", "\u00e9\U0001f680", "a\tb"], "env": {"Z": "1", "A": ""}, "io_timeout": "90s"}
    fields = {"payload": payload, "dimensions": {"arch": "arm|x86_64"}}
    first = harness.submit(graph(build=node(), a=same("build", **fields)))
    run(harness, bot, first)
    succeed(harness, "rack2", claim_all(harness, "rack2")[first["a"]])
    labels = harness.submit(graph(a=same(**fields), b=same(**fields, priority=3)))
    assert sources(harness, *labels.values()) == dict.fromkeys(labels.values(), first["a"])


def test_a_key_is_the_same_whether_its_first_part_was_known_or_not(harness: LifecycleHarness, bot: str) -> None:
    """The first task has a key since it was submitted; the key of the second is made of its definition."""
    first, second, third = (harness.submit(graph(build=node(), a=same("build"))) for _ in range(3))
    assert (keys_of(harness, first), keys_of(harness, second)) == (["a"], [])
    leases = claim_all(harness, bot)
    for labels, result in ((first, "v1"), (second, "v1"), (third, "v2")):
        succeed(harness, bot, leases[labels["build"]], result)
    assert harness.task(second["a"]).reason == Reason.DUPLICATE_OF.text
    assert harness.task(third["a"]).state is W
    succeed(harness, bot, claim_all(harness, bot)[first["a"]])
    assert sources(harness, second["a"]) == {second["a"]: first["a"]}
    checked(harness)


def test_of_tasks_released_at_once_the_first_by_priority_runs(harness: LifecycleHarness, bot: str) -> None:
    labels = harness.submit(graph(build=node(), a=same("build"), b=node("build")))
    more = harness.submit(graph(build=node(), a=same("build", priority=1)))
    with harness.store.read() as repo:
        assert [task for _, task in repo.reuse.keys_of([labels["a"], more["a"]])] == [labels["a"]]
    leases = claim_all(harness, bot)
    reports = tuple(Report(one.task, one.attempt, one.fence, Signal.SUCCEED) for one in leases.values())
    harness.poll(bot, 0, reports=reports)
    assert why(harness, labels["a"]) == (P, Reason.DUPLICATE_OF)
    assert harness.task(more["a"]).state is W
    checked(harness)


def test_a_task_submitted_between_two_pages_keeps_no_follower_waiting(harness: LifecycleHarness, bot: str) -> None:
    harness.submit(graph(a=same()))
    many = harness.submit({"tasks": {f"t{place}": same() for place in range(MANY)}})
    harness.fail(bot, harness.claim(bot)[0])
    late = harness.submit(graph(build=node(payload={"command": ["build"]}), a=same("build")))
    harness.run_continuations()
    assert harness.count_states(many) == {"waiting": 1, "pending": MANY - 1}
    assert keys_of(harness, late) == []
    checked(harness)


# Again.


def test_a_rerun_of_a_failed_task_reuses_what_is_known_by_then(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same(), b=node("a")))
    harness.fail(bot, harness.claim(bot)[0])
    second = harness.submit(graph(a=same()))
    run(harness, bot, second, a=5)
    harness.rerun(first["a"])
    harness.run_continuations()
    assert harness.state_names(first) == {"a": "successful", "b": "waiting"}
    assert result_of(harness, first["a"]) == "5"
    assert harness.task(first["a"]).life.attempt == 0
    assert sources(harness, first["a"]) == {first["a"]: second["a"]}
    checked(harness)


def test_dependents_of_a_rerun_task_receive_what_it_reuses_now(harness: LifecycleHarness, bot: str) -> None:
    document = graph(a=same(), b=same("a"))
    first = harness.submit(document)
    lease = harness.claim(bot)[0]
    failed = Report(lease.task, lease.attempt, lease.fence, Signal.FAIL, exit_code=1, result=msgspec.Raw(b"4"))
    harness.poll(bot, 0, reports=(failed,))
    second = harness.submit(document)
    for _ in "ab":
        run(harness, bot, second, a=5)
    harness.rerun(first["a"])
    harness.run_continuations()
    assert sources(harness, *first.values()) == {first[label]: second[label] for label in "ab"}
    checked(harness)


def test_a_result_that_is_deleted_is_reused_no_more(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same()))
    run(harness, bot, first)
    harness.do(lambda transaction: transaction.repo.reuse.forget([first["a"]]))
    second, third = harness.submit(graph(a=same())), harness.submit(graph(a=same()))
    harness.do(lambda transaction: transaction.repo.reuse.forget([first["a"]]))
    assert run(harness, bot, second) == ["a"]
    assert harness.state_names(third) == {"a": "successful"}


def test_what_the_server_does_itself_is_reused_too(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=noop(idempotent=True), b=noop(idempotent=True)))
    assert harness.run_server_tasks() == 1
    assert harness.state_names(labels) == {"a": "successful", "b": "successful"}


def test_a_leader_that_expires_frees_the_oldest_follower(harness: LifecycleHarness, bot: str) -> None:
    gpu = {"dimensions": {"gpu": "h100"}}
    first = harness.submit(graph(a=same(slices=[gpu | {"expires": "10s"}])))
    second, third = (harness.submit(graph(a=same(**gpu))) for _ in range(2))
    harness.wait(15_000, [bot])
    assert why(harness, first["a"]) == (State.ERROR, Reason.EXPIRED)
    assert harness.task(second["a"]).state is W
    assert why(harness, third["a"]) == (P, Reason.DUPLICATE_OF)
    checked(harness)


def test_a_follower_does_not_use_up_its_slices(harness: LifecycleHarness, bot: str) -> None:
    slices = [{"expires": "10s"}, {"dimensions": {"gpu": "h100"}}]
    first, second = harness.submit(graph(a=same())), harness.submit(graph(a=same(slices=slices)))
    lease = harness.claim(bot)[0]
    for _ in range(6):
        harness.renew(bot, lease)
        harness.wait(10_000, [bot])
    assert why(harness, second["a"]) == (P, Reason.DUPLICATE_OF)
    assert harness.task(second["a"]).life.slice_index == 0
    succeed(harness, bot, lease)
    assert harness.state_names(first) == harness.state_names(second) == {"a": "successful"}


def test_followers_whose_graph_is_canceled_neither_reuse_nor_lead(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same()))
    gone, kept = harness.submit(graph(b=same(), c=same())), harness.submit(graph(d=same()))
    harness.cancel(graph=gone.graph)
    harness.fail(bot, harness.claim(bot)[0])
    assert harness.state_names(gone) == {"b": "canceled", "c": "canceled"}
    assert harness.task(kept["d"]).state is W
    assert harness.graph_state(first) == "blocked"
    checked(harness)


def test_a_result_that_is_deleted_between_two_pages_is_made_anew(harness: LifecycleHarness, bot: str) -> None:
    first = harness.submit(graph(a=same()))
    run(harness, bot, first)
    hub = {f"t{place}": same("hub") for place in range(MANY)}
    many = harness.submit({"tasks": {"hub": node(payload={"command": ["hub"]}), **hub}})
    run(harness, bot, many)
    assert harness.count_states(many)["successful"] < MANY
    harness.do(lambda transaction: transaction.repo.reuse.forget([first["a"]]))
    harness.run_continuations()
    assert harness.count_states(many)["waiting"] == 1
    run(harness, bot, many)
    harness.run_continuations()
    assert harness.count_states(many) == {"successful": MANY + 1}
    checked(harness)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM reuse_follower", "leader is empty and should be a task under way"),
        ("UPDATE reuse_key SET leader_id = NULL", "leader is empty and should be a task under way"),
        ("UPDATE reuse_key SET leader_id = 8", "leads a key is deleted and should be under way"),
    ],
)
def test_the_doctor_finds_a_follower_that_would_wait_for_ever(
    harness: LifecycleHarness, database_url: str, bot: str, damage: str, found: str
) -> None:
    harness.submit(graph(a=same(), b=same()))
    checked(harness)
    execute_raw(database_url, damage)
    with harness.store.read() as repo:
        assert found in "; ".join(map(str, doctor(repo, harness.now)))
