"""Launches: which updates they need, make and join, and how an update ends what waits for it."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.core.fleet import SWEEP_MS
from taskyard.core.retention import Kept
from taskyard.core.states import Millis, Reason, Signal
from taskyard.lifecycle import links, transaction
from taskyard.lifecycle.commands import Cancel, Code, Refusal, Rerun
from taskyard.lifecycle.launch import LaunchStored
from taskyard.lifecycle.retention import find_due, purge_hidden_page
from taskyard.store.queries import StoreUnavailable
from tests.engine.launches import TOOLS, LaunchHarness, inventory, job, plugin, project

ON_LAUNCH: dict[str, Any] = {"update_on_launch": True}


@pytest.fixture
def harness(database_url: str) -> Iterator[LaunchHarness]:
    with LaunchHarness(database_url) as made:
        made.hello("b1", **TOOLS)
        yield made


def test_a_template_without_resources_is_one_task(harness: LaunchHarness) -> None:
    harness.apply(job())
    labels = harness.launch()
    assert list(labels) == ["job"]
    harness.run(labels["job"])
    assert harness.states_of(labels) == {"job": "successful"}


def test_a_project_marked_update_on_launch_is_updated_first(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    labels = harness.launch()
    update = harness.linked(labels)["project:web"]
    assert harness.states_of(labels) == {"project:web": "running", "job": "unscheduled"}
    harness.run(update, result={"revision": "abc"})
    assert harness.result(labels["project:web"]) == {"revision": "abc"}
    harness.run(labels["job"])
    assert harness.states_of(labels) == {"project:web": "successful", "job": "successful"}


def test_a_successful_update_is_good_until_its_cache_window_ends(harness: LaunchHarness) -> None:
    harness.apply(project(update_cache_timeout="10s", **ON_LAUNCH), job(project="web", allow_simultaneous=True))
    first = harness.launch()
    update = harness.linked(first)["project:web"]
    harness.run(update)
    harness.run(first["job"])
    finished = harness.tasks({"it": update})["it"].moved_ms
    harness.clock.ms = Millis(finished + 10_000 - 3)  # the keys of a launch are made up to three milliseconds later
    fresh = harness.launch()
    assert harness.linked(fresh)["project:web"] == update
    assert harness.states_of(fresh) == {"project:web": "successful", "job": "pending"}
    harness.run(fresh["job"])
    harness.clock.ms = Millis(finished + 10_001)
    assert harness.linked(harness.launch())["project:web"] != update


def test_without_a_cache_each_launch_makes_one_update_and_is_done(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    seen = set()
    for _ in range(3):
        labels = harness.launch()
        seen.add(harness.linked(labels)["project:web"])
        assert len(harness.run_all()) == 2
        assert harness.states_of(labels)["job"] == "successful"
    assert len(seen) == 3


def test_launches_join_an_update_that_is_in_flight(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job("one", project="web"), job("two", project="web"))
    one, two = harness.launch("one"), harness.launch("two")
    assert harness.linked(one) == harness.linked(two)
    lease = harness.lease(harness.linked(one)["project:web"])
    three = harness.launch("one")
    assert harness.linked(three) == harness.linked(one)
    harness.finish(lease)
    for labels in (one, two, three):
        assert harness.states_of(labels)["project:web"] == "successful"


def test_an_update_is_created_just_before_its_job(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    labels = harness.launch()
    update, own = harness.tasks({"update": harness.linked(labels)["project:web"], "job": labels["job"]}).values()
    assert update.created_ms < own.created_ms


@pytest.mark.parametrize("signal", [Signal.FAIL, Signal.LOSE])
def test_an_update_that_fails_fails_the_job_and_its_rerun_mends_nothing(harness: LaunchHarness, signal: Signal) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    labels = harness.launch()
    update = harness.linked(labels)["project:web"]
    for _ in range(3 if signal is Signal.LOSE else 1):  # a lost bot costs a retry first
        harness.run(update, signal)
    tasks = harness.tasks(labels)
    assert (tasks["project:web"].state, tasks["project:web"].reason) == ("failed", Reason.UPDATE_FAILED)
    assert (tasks["job"].state, tasks["job"].reason) == ("failed", Reason.PREREQUISITE_FAILED)
    assert harness.result(labels["project:web"])["state"] in {"failed", "error"}


def test_a_canceled_update_fails_the_job(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    labels = harness.launch()
    harness.engine.cancel(Cancel(task=harness.linked(labels)["project:web"], actor="ann"))
    harness.settle()
    assert harness.states_of(labels) == {"project:web": "failed", "job": "failed"}


def test_a_launch_after_a_failed_update_makes_another(harness: LaunchHarness) -> None:
    harness.apply(project(update_cache_timeout="1h", **ON_LAUNCH), job(project="web"))
    failed = harness.linked(harness.launch())["project:web"]
    harness.run(failed, Signal.FAIL)
    labels = harness.launch()
    assert harness.linked(labels)["project:web"] != failed


def test_an_update_that_is_being_stopped_is_not_joined(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web", allow_simultaneous=True))
    update = harness.linked(harness.launch())["project:web"]
    lease = harness.lease(update)
    harness.engine.cancel(Cancel(task=update, actor="ann"))
    labels = harness.launch()
    assert harness.linked(labels)["project:web"] != update
    harness.finish(lease, Signal.FAIL)
    harness.run(harness.linked(labels)["project:web"])
    assert harness.states_of(labels)["project:web"] == "successful"


def test_a_project_that_is_not_updated_on_launch_is_used_as_it_was_updated_last(harness: LaunchHarness) -> None:
    harness.apply(project(), job(project="web"))
    refused = harness.try_launch("deploy")
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.faults[0].path) == (Code.INVALID, "project:web")
    assert "taskyard update project web" in refused.faults[0].message
    first, second = harness.update(), harness.update()
    harness.run(first["project:web"], result={"revision": "1"})
    harness.run(second["project:web"], Signal.FAIL)
    labels = harness.launch()
    assert harness.result(labels["project:web"]) == {"revision": "1"}
    assert harness.linked(labels)["project:web"] == first["project:web"]


def test_an_explicit_update_ignores_the_cache_and_what_is_in_flight(harness: LaunchHarness) -> None:
    harness.apply(project(update_cache_timeout="1h", **ON_LAUNCH))
    made = [harness.update()["project:web"] for _ in range(3)]
    assert len(set(made)) == 3
    assert harness.run_all() == made


def test_an_update_of_what_the_project_was_before_says_nothing(harness: LaunchHarness) -> None:
    harness.apply(project(update_cache_timeout="1h", **ON_LAUNCH), job(project="web"))
    before = harness.linked(harness.launch())["project:web"]
    harness.run_all()
    harness.apply(project(branch="next", update_cache_timeout="1h", **ON_LAUNCH))
    assert harness.linked(harness.launch())["project:web"] != before


def test_a_source_that_comes_from_a_project_waits_for_the_update_of_that_project(harness: LaunchHarness) -> None:
    source = {"name": "file", "project": "web", "path": "hosts.ini", **ON_LAUNCH}
    harness.apply(project(**ON_LAUNCH), inventory(sources=[source]), job(inventory="hosts"))
    labels = harness.launch()
    update = harness.linked(labels)["source:hosts/file"]
    with harness.store.read() as repo:
        (task,) = repo.tasks.read([update])
        of_update = harness.labels(task.graph)
    assert harness.states_of(of_update) == {"project:web": "running", "source:hosts/file": "unscheduled"}
    harness.run(harness.linked(of_update)["project:web"])
    harness.run(update, result={"hosts": 2})
    assert harness.result(labels["source:hosts/file"]) == {"hosts": 2}
    harness.run(labels["job"])


def test_the_failure_of_a_project_reaches_the_job_through_its_source(harness: LaunchHarness) -> None:
    source = {"name": "file", "project": "web", "path": "hosts.ini", **ON_LAUNCH}
    harness.apply(project(**ON_LAUNCH), inventory(sources=[source]), job(inventory="hosts"))
    labels = harness.launch()
    with harness.store.read() as repo:
        (task,) = repo.tasks.read([harness.linked(labels)["source:hosts/file"]])
    of_update = harness.labels(task.graph)
    harness.run(harness.linked(of_update)["project:web"], Signal.FAIL)
    assert harness.states_of(of_update) == {"project:web": "failed", "source:hosts/file": "failed"}
    assert harness.states_of(labels) == {"source:hosts/file": "failed", "job": "failed"}


def test_each_source_of_an_inventory_has_an_update_of_its_own(harness: LaunchHarness) -> None:
    sources = [plugin("a", **ON_LAUNCH), plugin("b", **ON_LAUNCH)]
    harness.apply(inventory(sources=sources), job(inventory="hosts"))
    labels = harness.launch()
    assert set(harness.linked(labels)) == {"source:hosts/a", "source:hosts/b"}
    harness.settle()
    leases = harness.claim(4)
    assert {lease.task for lease in leases} == set(harness.linked(labels).values())
    for lease in leases:
        harness.finish(lease)
    harness.run(labels["job"])


# Cancel.


def test_canceling_a_launch_cancels_the_update_that_only_it_needs(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    labels = harness.launch()
    update = harness.linked(labels)["project:web"]
    harness.cancel(labels)
    assert harness.states_of(labels) == {"project:web": "canceled", "job": "canceled"}
    assert harness.state(update) == "canceled"


def test_canceling_one_of_two_launches_that_share_an_update_leaves_it_to_the_other(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job("one", project="web"), job("two", project="web"))
    one, two = harness.launch("one"), harness.launch("two")
    update = harness.linked(one)["project:web"]
    harness.cancel(one)
    harness.run(update)
    harness.run(two["job"])
    assert harness.states_of(two)["job"] == "successful"


def test_canceling_the_last_launch_that_shares_an_update_cancels_it(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job("one", project="web"), job("two", project="web"))
    one, two = harness.launch("one"), harness.launch("two")
    harness.cancel(one)
    harness.cancel(two)
    assert harness.state(harness.linked(one)["project:web"]) == "canceled"


def test_canceling_a_launch_leaves_an_update_that_a_person_asked_for(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    update = harness.update()["project:web"]
    labels = harness.launch()
    assert harness.linked(labels)["project:web"] == update
    harness.cancel(labels)
    harness.run(update)


def test_canceling_a_launch_reaches_the_project_behind_a_source(harness: LaunchHarness) -> None:
    source = {"name": "file", "project": "web", "path": "hosts.ini", **ON_LAUNCH}
    harness.apply(project(**ON_LAUNCH), inventory(sources=[source]), job(inventory="hosts"))
    labels = harness.launch()
    with harness.store.read() as repo:
        (task,) = repo.tasks.read([harness.linked(labels)["source:hosts/file"]])
    behind = harness.linked(harness.labels(task.graph))["project:web"]
    harness.cancel(labels)
    assert harness.state(behind) == "canceled"


# Once.


def test_a_launch_that_is_repeated_with_its_key_is_an_echo(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web", variables={"x": 1}))
    first = harness.try_launch("deploy", key="k1")
    again = harness.try_launch("deploy", key="k1")
    other = harness.try_launch("deploy", key="k1", x=2)
    assert isinstance(first, LaunchStored)
    assert again == LaunchStored(first.graph, echo=True)
    assert isinstance(other, Refusal)
    assert other.code is Code.CONFLICT
    with harness.store.read() as repo:
        assert len(repo.launches.page("", "", None, -1, 10)) == 2  # the launch and its update


def test_nothing_is_stored_of_a_launch_that_is_refused(harness: LaunchHarness) -> None:
    harness.apply(
        project(**ON_LAUNCH),
        job(project="web", limits={"licences": 1}),
        job("asked", survey=[{"name": "size", "type": "integer", "required": True}]),
    )
    for name in ("deploy", "asked", "unknown"):
        assert isinstance(harness.try_launch(name), Refusal)
    with harness.store.read() as repo:
        assert repo.launches.page("", "", None, -1, 10) == []


def test_a_launch_from_a_catalogue_that_changes_meanwhile_uses_it_as_it_is_then(harness: LaunchHarness) -> None:
    harness.apply(job(variables={"x": 1}))
    launcher = harness.engine._launcher
    made = launcher._make
    changes = iter([2, 3])

    def make(*said: object) -> object:
        found = made(*said)  # type: ignore[arg-type]
        if (x := next(changes, None)) is not None:
            harness.apply(job(variables={"x": x}))
        return found

    launcher._make = make  # type: ignore[method-assign, assignment]
    harness.launch()
    with harness.store.read() as repo:
        (row,) = repo.launches.page("job_template", "deploy", None, -1, 10)
    assert row.version == 3


def test_a_launch_whose_commit_was_not_acknowledged_is_stored_once(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    harness.store.after = [StoreUnavailable("the answer was lost")]
    labels = harness.launch()
    assert harness.linked(labels)["project:web"]
    with harness.store.read() as repo:
        assert len(repo.launches.page("", "", None, -1, 10)) == 2
    assert len(harness.run_all()) == 2


def test_links_beyond_one_transaction_are_ended_by_continuations_with_their_jobs_in_order(
    harness: LaunchHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PROPAGATED_MAX", 6)
    harness.apply(project(**ON_LAUNCH), job(project="web", allow_simultaneous=True))
    launched = [harness.launch() for _ in range(8)]
    lease = harness.lease(harness.linked(launched[0])["project:web"])
    harness.end(lease)
    states = [harness.states_of(labels) for labels in launched]
    assert [one["project:web"] for one in states] == ["successful"] * 3 + ["running"] * 5, "the oldest come first"
    assert [one["job"] for one in states] == ["pending"] * 3 + ["unscheduled"] * 5, "they are released with their links"
    harness.settle()
    assert {harness.states_of(labels)["project:web"] for labels in launched} == {"successful"}
    assert len(harness.run_all()) == 8


def test_a_link_whose_update_is_deleted_has_nothing_to_wait_for(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    labels = harness.launch()
    update = harness.linked(labels)["project:web"]
    harness.run(update, Signal.FAIL)
    graph = harness.tasks({"it": update})["it"].graph
    assert harness.engine.delete_graph(f"{graph:016x}", actor="ann") is None
    while harness.engine.transact(purge_hidden_page):
        pass
    harness.engine.rerun(Rerun(graph=labels.graph, actor="ann"))
    harness.settle()
    assert harness.states_of(labels) == {"project:web": "successful", "job": "waiting"}
    harness.run_all()


def test_a_running_link_whose_update_has_ended_is_swept(
    harness: LaunchHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web"))
    labels = harness.launch()
    lease = harness.lease(harness.linked(labels)["project:web"])
    monkeypatch.setattr(links, "end_linked", lambda *_: [])  # as if the hint was lost
    harness.end(lease)
    assert harness.states_of(labels)["project:web"] == "running"
    harness.clock.advance(2 * SWEEP_MS)
    harness.settle()
    assert harness.states_of(labels)["project:web"] == "successful"
    monkeypatch.undo()
    harness.run_all()


def test_the_last_good_update_of_a_resource_is_kept_whatever_its_age(harness: LaunchHarness) -> None:
    harness.apply(project(), job(project="web"))
    old, last = harness.update(), harness.update()
    harness.run_all()
    harness.engine.set_retention("*", {Kept.GRAPHS: 1_000}, actor="ann")
    harness.clock.advance(100_000)
    with harness.store.read() as repo:
        due = find_due(repo, repo.retention.times(), (0, -1), harness.clock.now())
    assert (old.graph in due.graphs, last.graph in due.graphs) == (True, False)
    assert harness.linked(harness.launch())["project:web"] == last["project:web"]


def test_in_a_pool_that_counts_forks_a_play_weighs_as_many_as_it_uses(harness: LaunchHarness) -> None:
    play: dict[str, object] = {"kind": "job_template", "project": "web", "playbook": "site.yml", "inventory": "hosts"}
    harness.apply(
        {"kind": "pool", "name": "default", "from_bots": True, "unit": "forks"},
        inventory(hosts={f"h{number}": {} for number in range(3)}),
        inventory("many", groups={"web": {"hosts": {f"h{number}": {} for number in range(40)}}}),
        project(),
        play | {"name": "few"},
        play | {"name": "usual", "inventory": "many"},
        play | {"name": "wide", "inventory": "many", "forks": 30},
        play | {"name": "own", "weight": 7},
        job("plain"),
        {"kind": "system_job_template", "name": "tidy", "payload": {"command": ["true"]}},
    )
    harness.run(harness.update()["project:web"])
    names = ["few", "usual", "wide", "own", "plain", "tidy"]
    weights = {name: harness.tasks(harness.launch(name))["job"].weight for name in names}
    assert weights == {"few": 4, "usual": 6, "wide": 31, "own": 7, "plain": 1, "tidy": 5}
