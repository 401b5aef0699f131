"""The tags by which tasks are found, and the runs in which they are stored."""

from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.graph import validate
from taskyard.core.graph.model import Task
from taskyard.core.graph.parse import urgent_pools
from taskyard.core.ids import EPOCH_MS, STEP, last_key_since, mint
from taskyard.core.states import Millis
from taskyard.core.tags import all_tags, tag_runs, user_of

PAYLOAD = {"command": ["true"]}
#: The tags of some neighbours: few different ones, so that many are equal.
SOME_TAGS = st.sets(st.sampled_from("abc")).map(lambda found: tuple(sorted(found)))


def only_task(**fields: object) -> Task:
    found = validate({"tasks": {"t": {"task": {"payload": PAYLOAD} | fields}}})
    assert found.graph is not None, found.faults
    return found.graph.tasks["t"]


def test_a_task_has_its_dimensions_user_priority_and_pool_as_tags() -> None:
    slices = [{"dimensions": {"pool": "lab", "os": "Linux|Mac"}}, {"dimensions": {"pool": "lab", "gpu": ["a", "b"]}}]
    task = only_task(slices=slices, priority=30, tags=["build:7", "os:Linux"])
    assert all_tags(task, "ada") == (
        "build:7", "gpu:a", "gpu:b", "os:Linux", "os:Mac", "pool:lab", "priority:30", "user:ada",
    )  # fmt: skip


def test_compared_dimensions_and_what_a_task_takes_are_tags_as_they_were_written() -> None:
    task = only_task(dimensions={"memory_gb": ">=16"}, cpus=2)
    assert {"cores:>=2", "memory_gb:>=16"} <= set(all_tags(task, ""))


def test_a_user_among_the_tags_counts_and_not_the_sender() -> None:
    task = only_task(tags=["user:bea"])
    assert user_of(task, "ada") == "bea"
    assert all_tags(task, "ada") == ("pool:default", "priority:100", "user:bea")
    assert all_tags(only_task(), "") == ("pool:default", "priority:100")


@given(st.lists(st.tuples(st.integers(1, 30), SOME_TAGS), unique_by=lambda one: one[0]))
def test_runs_name_every_task_once_for_each_of_its_tags(given_tags: list[tuple[int, tuple[str, ...]]]) -> None:
    tagged = sorted((place * STEP, tags) for place, tags in given_tags)
    runs = list(tag_runs(tagged))
    named = [(id, tag) for tag, last, first in runs for id in range(first, last + 1, STEP)]
    assert sorted(named) == sorted((id, tag) for id, tags in tagged for tag in tags)


def test_equal_neighbours_are_one_row_for_each_tag() -> None:
    assert len(list(tag_runs((place * STEP, ("a", "b")) for place in range(1_000)))) == 2


@given(st.integers(0, 2**20), st.integers(0, 2**16 - 1), st.integers(-5, 5))
def test_what_is_created_since_a_moment_has_no_greater_key(at: int, chance: int, later: int) -> None:
    now = Millis(EPOCH_MS + 10 + at)
    (key,) = mint(now, 1, chance)
    assert (key <= last_key_since(Millis(now + later))) == (later <= 0)


def test_urgent_tasks_are_found_also_inside_and_with_their_pools() -> None:
    inner = {"tasks": {"x": {"task": {"payload": PAYLOAD, "priority": 3, "dimensions": {"pool": "lab"}}}}}
    document = {
        "tasks": {
            "a": {"task": {"payload": PAYLOAD}},
            "b": {"task": {"payload": PAYLOAD, "priority": 20}},
            "c": {"task": {"payload": PAYLOAD, "priority": 19, "dimensions": {"pool": "ci"}}},
            "d": {"task": {"payload": {"graph": inner}}},
        }
    }
    graph = validate(document).graph
    assert graph is not None
    assert urgent_pools(graph.tasks.values()) == {19: {"ci"}, 3: {"lab"}}
