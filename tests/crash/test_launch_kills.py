"""A process is killed at commits of launches; the next one finds all of a launch or nothing, and each update once."""

from collections import Counter
from collections.abc import Iterator

import pytest

from taskyard.core.states import State
from taskyard.lifecycle.doctor.check import doctor
from taskyard.store.connection import Repo, open_store
from tests.crash.launch_scenario import LAUNCHED, run_launches
from tests.crash.scenario import ScenarioClock
from tests.fork_server import KILLED, ForkServer

#: The commits at which it is killed: every one of some kinds until the scenario is at its end, which has fewer.
PLACES = [
    (name, side, count)
    for name, counts in {"batch": range(1, 13), "own": (1, 2, 3), "note.page": (1, 2, 3), "pass.page": (1, 3)}.items()
    for side in ("before", "after")
    for count in counts
]
#: On the slower database only some.
FEW = [("batch", "after", 1), ("batch", "before", 2), ("batch", "after", 3), ("own", "after", 2)]


@pytest.fixture(scope="module")
def process() -> Iterator[ForkServer]:
    with ForkServer(run_launches) as server:
        yield server


def check(repo: Repo) -> None:
    """Everything that was launched is there once and successful, and each update was made once."""
    assert doctor(repo, ScenarioClock().now()) == []
    rows = repo.launches.page("", "", None, -1, 1_000)
    by_type = Counter(row.launch_type for row in rows)
    assert by_type["manual"] == len(LAUNCHED)
    assert by_type["workflow"] == 2
    # The cache lasts for the whole scenario: each resource is updated once, and the project once more by hand.
    assert Counter(row.name for row in rows if row.launch_type == "dependent") == {
        "web": 1, "hosts/cloud": 1, "hosts/file": 1,
    }  # fmt: skip
    for row in rows:
        states = {state for _, state in repo.tasks.page_any_state(row.graph, -1, 100)}
        assert states == {State.SUCCESSFUL}, (row.kind, row.name, states)


def run_through(process: ForkServer, url: str, failpoint: str) -> None:
    assert process(failpoint, url) == KILLED, "the process did not come to the failpoint"
    assert process("batch.before:exit@100000", url) == 0
    store = open_store(url)
    try:
        with store.read() as repo:
            check(repo)
    finally:
        store.close()


@pytest.mark.parametrize(("name", "side", "count"), PLACES)
def test_a_kill_leaves_all_of_a_launch_or_nothing(
    process: ForkServer, sqlite_url: str, name: str, side: str, count: int
) -> None:
    run_through(process, sqlite_url, f"{name}.{side}:exit@{count}")


@pytest.mark.parametrize(("name", "side", "count"), FEW)
def test_so_it_does_on_the_other_database(
    process: ForkServer, postgres_url: str, name: str, side: str, count: int
) -> None:
    run_through(process, postgres_url, f"{name}.{side}:exit@{count}")
