"""Update on launch with its cache windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core import launch
from taskyard.core.graph.gate import Edges, EdgeState, edge_after, gate
from taskyard.core.launch import Freshness, Need, Resource, Update
from taskyard.core.states import Millis, Reason, Signal, State, TaskId, effects, step
from tests.each_row import each_row

S = State
FRESH, JOIN, UPDATE = Freshness.FRESH, Freshness.JOIN, Freshness.UPDATE
R = launch.Role
NOW = Millis(1_800_000_000_000)
CACHE_MS = 60_000


def latest(resource: str, state: State, ago_ms: int | None = None) -> Update:
    """The latest update of a resource, with a task id that names it."""
    return Update(resource, TaskId(f"{resource}-update"), state, None if ago_ms is None else Millis(NOW - ago_ms))


def known(*updates: Update) -> dict[str, Update]:
    return {update.resource: update for update in updates}


def linked(resource: str, how: Freshness, after: str | None = None, used: bool = True) -> Need:
    """A need, linked to the latest update unless one has to be made."""
    return Need(resource, how, None if how is UPDATE else TaskId(f"{resource}-update"), after, used)


# Update on launch.


@each_row(
    ("state", "finished_ago_ms", "expected"),
    [
        # the last update did not finish successfully
        (S.FAILED, 0, UPDATE),
        (S.ERROR, 0, UPDATE),
        (S.CANCELED, 0, UPDATE),
        (S.SKIPPED, 0, UPDATE),
        # it is in flight: link the existing one
        (S.UNSCHEDULED, None, JOIN),
        (S.PENDING, None, JOIN),
        (S.WAITING, None, JOIN),
        (S.RUNNING, None, JOIN),
        # it cannot end well without a person
        (S.STOPPING, None, UPDATE),
        (S.BLOCKED, None, UPDATE),
        # it finished successfully, and the finished time puts it within the cache window, or not
        (S.SUCCESSFUL, -1, FRESH),
        (S.SUCCESSFUL, 0, FRESH),
        (S.SUCCESSFUL, CACHE_MS - 1, FRESH),
        (S.SUCCESSFUL, CACHE_MS, FRESH),
        (S.SUCCESSFUL, CACHE_MS + 1, UPDATE),
    ],
)
def test_an_update_is_spawned_unless_the_last_one_is_in_flight_or_within_its_cache_window(
    state: State, finished_ago_ms: int | None, expected: Freshness
) -> None:
    last = latest("project:7", state, finished_ago_ms)
    assert launch.needs("project:7", last, NOW, CACHE_MS) is expected


def test_every_state_of_an_update_has_its_rule() -> None:
    joined = {s for s in State if launch.needs("p", latest("p", s, CACHE_MS + 1), NOW, CACHE_MS) is JOIN}
    assert joined == {S.UNSCHEDULED, S.PENDING, S.WAITING, S.RUNNING}


def test_a_resource_that_was_never_updated_is_updated() -> None:
    assert launch.needs("project:7", None, NOW, CACHE_MS) is UPDATE


def test_without_a_cache_only_an_update_of_this_very_moment_is_fresh() -> None:
    assert launch.needs("project:7", latest("project:7", S.SUCCESSFUL, 0), NOW, cache_ms=0) is FRESH
    assert launch.needs("project:7", latest("project:7", S.SUCCESSFUL, 1), NOW, cache_ms=0) is UPDATE


@each_row("state", State)
def test_an_explicit_update_is_always_made_whatever_is_cached_or_in_flight(state: State) -> None:
    last = latest("project:7", state, 0)
    assert launch.needs("project:7", last, NOW, CACHE_MS, explicit=True) is UPDATE


def test_an_update_of_another_resource_is_no_evidence() -> None:
    with pytest.raises(AssertionError, match="another resource"):
        launch.needs("project:7", latest("project:8", S.SUCCESSFUL, 0), NOW, CACHE_MS)


# The plan of a launch.

PROJECT = Resource("project:7", cache_ms=CACHE_MS)
CLOUD = Resource("source:1", cache_ms=CACHE_MS)
FROM_PROJECT = Resource("source:2", cache_ms=CACHE_MS, comes_from=PROJECT)


def test_projects_and_inventory_sources_marked_update_on_launch_are_updated_when_a_job_template_is_launched() -> None:
    assert launch.plan([PROJECT, CLOUD], {}, NOW) == (linked("project:7", UPDATE), linked("source:1", UPDATE))


def test_resources_not_marked_update_on_launch_are_left_alone() -> None:
    unmarked = Resource("project:7", update_on_launch=False)
    assert launch.plan([unmarked, CLOUD], {}, NOW) == (linked("source:1", UPDATE),)


def test_each_resource_is_judged_by_its_own_latest_update_and_its_own_window() -> None:
    short = Resource("source:3", cache_ms=10)
    updates = known(
        latest("project:7", S.SUCCESSFUL, 11), latest("source:1", S.RUNNING), latest("source:3", S.SUCCESSFUL, 11)
    )
    assert launch.plan([PROJECT, CLOUD, short], updates, NOW) == (
        linked("project:7", FRESH),
        linked("source:1", JOIN),
        linked("source:3", UPDATE),
    )


def test_a_source_named_as_already_updated_is_left_out() -> None:
    assert launch.plan([PROJECT, CLOUD], {}, NOW, updated={"source:1"}) == (linked("project:7", UPDATE),)


def test_a_resource_that_is_listed_twice_is_updated_once() -> None:
    assert launch.plan([PROJECT, CLOUD, PROJECT], {}, NOW) == launch.plan([PROJECT, CLOUD], {}, NOW)


def test_a_source_that_comes_from_a_project_waits_for_the_update_of_that_project() -> None:
    assert launch.plan([FROM_PROJECT], {}, NOW) == (
        linked("project:7", UPDATE, used=False),
        linked("source:2", UPDATE, after="project:7"),
    )


@pytest.mark.parametrize("resources", [[PROJECT, FROM_PROJECT], [FROM_PROJECT, PROJECT]])
def test_a_launch_that_uses_the_project_of_its_source_too_updates_it_once(resources: list[Resource]) -> None:
    assert launch.plan(resources, {}, NOW) == (
        linked("project:7", UPDATE),
        linked("source:2", UPDATE, after="project:7"),
    )


@pytest.mark.parametrize(
    ("state", "ago_ms", "how"), [(S.RUNNING, None, JOIN), (S.SUCCESSFUL, CACHE_MS, FRESH), (S.FAILED, 0, UPDATE)]
)
def test_the_project_behind_a_source_is_judged_like_any_other(state: State, ago_ms: int | None, how: Freshness) -> None:
    assert launch.plan([FROM_PROJECT], known(latest("project:7", state, ago_ms)), NOW) == (
        linked("project:7", how, used=False),
        linked("source:2", UPDATE, after="project:7"),
    )


@pytest.mark.parametrize(("state", "ago_ms", "how"), [(S.PENDING, None, JOIN), (S.SUCCESSFUL, 0, FRESH)])
def test_a_source_that_needs_no_update_does_not_ask_for_its_project(
    state: State, ago_ms: int | None, how: Freshness
) -> None:
    assert launch.plan([FROM_PROJECT], known(latest("source:2", state, ago_ms)), NOW) == (linked("source:2", how),)


def test_a_project_that_is_not_updated_on_launch_is_not_updated_for_its_source_either() -> None:
    unmarked = Resource("source:2", comes_from=Resource("project:7", update_on_launch=False))
    assert launch.plan([unmarked], {}, NOW) == (linked("source:2", UPDATE),)


def test_a_project_named_as_already_updated_is_not_updated_for_its_source_either() -> None:
    assert launch.plan([FROM_PROJECT], {}, NOW, updated={"project:7"}) == (linked("source:2", UPDATE),)


def test_two_sources_of_one_project_share_its_update() -> None:
    other = Resource("source:3", comes_from=PROJECT)
    assert launch.plan([FROM_PROJECT, other], {}, NOW) == (
        linked("project:7", UPDATE, used=False),
        linked("source:2", UPDATE, after="project:7"),
        linked("source:3", UPDATE, after="project:7"),
    )


def test_the_project_of_a_source_depends_on_nothing() -> None:
    with pytest.raises(ValueError, match="source:9 comes from source:2"):
        Resource("source:9", comes_from=FROM_PROJECT)


def test_two_launches_at_once_need_one_update_and_both_hang_on_it() -> None:
    first = launch.plan([PROJECT, FROM_PROJECT], {}, NOW)
    made = known(latest("project:7", S.PENDING), latest("source:2", S.UNSCHEDULED))
    second = launch.plan([PROJECT, FROM_PROJECT], made, NOW)
    assert [need.freshness for need in first] == [UPDATE, UPDATE]
    assert second == (linked("project:7", JOIN), linked("source:2", JOIN))


def test_a_launch_without_resources_needs_nothing() -> None:
    assert launch.plan([], known(latest("project:7", S.FAILED, 0)), NOW) == ()


@pytest.mark.parametrize("end", [S.FAILED, S.ERROR, S.CANCELED])
def test_if_a_dependent_update_does_not_succeed_the_launch_fails_with_it(end: State) -> None:
    shown = effects(S.RUNNING, end).propagates
    assert shown is not None
    assert edge_after(EdgeState.AWAITED, launch.LINK_ON, shown) is EdgeState.BROKEN
    asked = gate(Edges(met=1, broken=1), on_impossible=launch.LINK_IMPOSSIBLE)
    assert asked is Signal.DOOM
    assert step(S.UNSCHEDULED, asked).target is S.FAILED


resources = st.builds(
    Resource,
    st.sampled_from(["source:1", "source:2", "source:3"]),
    st.booleans(),
    st.just(CACHE_MS),
    st.sampled_from([None, PROJECT, Resource("project:8")]),
)
updates = st.builds(
    latest,
    st.sampled_from(["source:1", "source:2", "source:3", "project:7", "project:8"]),
    st.sampled_from(State),
    st.sampled_from([0, CACHE_MS + 1]),
)


@given(st.lists(st.one_of(resources, st.just(PROJECT)), max_size=5), st.lists(updates, max_size=5))
def test_any_plan_names_each_resource_once_and_after_what_it_waits_for(
    used: list[Resource], updates: list[Update]
) -> None:
    needs = launch.plan(used, known(*updates), NOW)
    names = [need.resource for need in needs]
    assert len(names) == len(set(names))
    for place, need in enumerate(needs):
        assert need.after is None or need.after in names[:place]
        assert (need.update is None) is (need.freshness is UPDATE)
        assert need.used is any(one.name == need.resource and one.update_on_launch for one in used)


# The rules in words.


@each_row(
    ("key", "own", "holder", "said"),
    [
        ("project:web", R.PROJECT_UPDATE, R.PROJECT_UPDATE, "one project update per project: web is being updated by"),
        ("project:web", R.JOB, R.PROJECT_UPDATE, "for a project, a job or a project update, not both: web is being "),
        ("project:web", R.PROJECT_UPDATE, R.JOB, "for a project, a job or a project update, not both: web is used by"),
        ("inventory:a", R.JOB, R.INVENTORY_UPDATE, "for an inventory, a job or inventory updates, not both: a is bei"),
        ("inventory:a", R.AD_HOC, R.JOB, "an ad-hoc command has its inventory alone: a is used by"),
        ("source:a/b", R.INVENTORY_UPDATE, R.INVENTORY_UPDATE, "one inventory update per source: a/b is being updat"),
        ("template:t", R.JOB, R.JOB, "one job per job template: t is used by"),
        ("workflow:w", R.WORKFLOW, R.WORKFLOW, "one workflow per workflow template: w is used by"),
        ("system", R.SYSTEM_JOB, R.SYSTEM_JOB, "one system job: it is used by"),
        ("device:7", R.JOB, R.JOB, ""),
    ],
)
def test_each_rule_is_said_in_words(key: str, own: launch.Role, holder: launch.Role, said: str) -> None:
    words = launch.rule_words(key, own, holder)
    assert words.startswith(said)
    assert bool(words) is bool(said)


def test_every_state_has_a_status_in_the_words_of_awx() -> None:
    assert {state: launch.status(state, "") for state in State}.keys() == set(State)
    assert launch.status(S.RUNNING, Reason.ASSIGNED) == "waiting"
    assert launch.status(S.RUNNING, Reason.UNDER_WAY) == "running"
