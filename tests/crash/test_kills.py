"""A real process is killed before and after every kind of commit; the next one finds all that was acknowledged.

The failpoints come from the engine, so a new one is tested as soon as it exists: if the process survives, it did not
come to the failpoint, and the test fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taskyard.engine.engine import Engine
from taskyard.engine.failpoints import names
from taskyard.lifecycle.commands import Cancel, Rerun
from tests.crash.checks import check, repeated
from tests.crash.journal import Journal
from tests.crash.scenario import PAGE, ScenarioClock, ScenarioRunner, run_scenario
from tests.crash.small_pages import PLACES, shrink
from tests.fork_server import KILLED, ForkServer

#: How long the server is away: long enough to extend leases after it.
AWAY_MS = 20_000
#: Later counts of a failpoint: among pages,
PAGES = {"load.page": (2, 3), "note.page": (2, 3), "pass.page": (2, 3), "limit": (2,), "repair": (2, 3, 4, 5)}
#: and when there is more to do than at first. What depends on the database is tested above.
LATER = {
    "batch": (9, 40), "load.open": (3,), "load.drop": (2,), "own": (3,), "lapse": (7,), "silence": (8,), "forget": (3,),
}  # fmt: skip


def transactions(later: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    return [(name, transaction) for name in names() for transaction in later.get(name.rpartition(".")[0], ())]


#: In the last part of the scenario, approvals are decided, and graphs inside tasks begin, settle and are canceled.
LAST_PART = {"batch": (63, 64), "note.page": (50,)}
#: At its end, a task ends that equal ones wait for, and they reuse its result page by page.
EQUAL_TASKS = {"batch": (73, 74), "note.page": (59, 60)}
#: A scenario that makes progress between kills ends after fewer kills than this.
DEATHS_MAX = 30


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in PLACES:
        monkeypatch.setattr(module, name, PAGE)


@pytest.fixture(scope="module")
def process() -> Iterator[ForkServer]:
    with ForkServer(run_process) as server:
        yield server


def run_process(url: str, journal: str) -> None:
    """Run the scenario to its end, or until the failpoint kills the process."""
    shrink(PAGE)
    clock = ScenarioClock()
    engine = Engine.open(url, clock)
    engine.writer_thread.start()  # the scenario runs background work, so that each kill is at the same place
    run_scenario(ScenarioRunner(engine, clock, Path(journal)))
    engine.stop()


@contextmanager
def restarted_engine(url: str, path: Path) -> Iterator[Engine]:
    """Start an engine after a kill, and run the scenario to its end."""
    clock = ScenarioClock()
    engine = Engine.open(url, clock)
    engine.writer_thread.start()
    try:
        runner = ScenarioRunner(engine, clock, path)
        clock.advance(AWAY_MS)
        run_scenario(runner)
        runner.journal.close()
        yield engine
    finally:
        engine.stop()


def audit(engine: Engine, path: Path) -> None:
    """Everything is as without a kill, and repeated requests get the first answers."""
    journal = Journal(path)
    lines = journal.lines()
    journal.close()
    before = check(engine, lines)
    assert [again for again in repeated(engine, lines) if again[0] != again[1]] == []
    for line in lines:
        if line.call in {"Cancel", "Rerun"}:
            items = line.arguments["command"].items()  # from JSON, which has no tuples
            fields: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in items if name
            }
            answer = engine.cancel(Cancel(**fields)) if line.call == "Cancel" else engine.rerun(Rerun(**fields))
            assert answer == line.answer
    assert check(engine, lines) == before


def kill_and_restart(process: ForkServer, url: str, journal: Path, failpoint: str) -> None:
    assert process(failpoint, url, journal) == KILLED, "the process did not come to the failpoint"
    with restarted_engine(url, journal) as engine:
        audit(engine, journal)


@pytest.mark.parametrize(
    ("name", "transaction"), [*((name, 1) for name in names()), *transactions(PAGES), *transactions(EQUAL_TASKS)]
)
def test_a_killed_server_loses_nothing_that_was_acknowledged(
    process: ForkServer, database_url: str, tmp_path: Path, name: str, transaction: int
) -> None:
    kill_and_restart(process, database_url, tmp_path / "journal", f"{name}:exit@{transaction}")


@pytest.mark.parametrize(("name", "transaction"), [*transactions(LATER), *transactions(LAST_PART)])
def test_a_server_killed_at_a_later_commit_loses_nothing_either(
    process: ForkServer, sqlite_url: str, tmp_path: Path, name: str, transaction: int
) -> None:
    kill_and_restart(process, sqlite_url, tmp_path / "journal", f"{name}:exit@{transaction}")


def test_a_server_killed_again_and_again_comes_to_the_end(
    process: ForkServer, database_url: str, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    deaths = 0
    while process("batch.after:exit@12", database_url, journal) == KILLED:
        deaths += 1
        assert deaths < DEATHS_MAX
    assert deaths > 3
    with restarted_engine(database_url, journal) as engine:
        audit(engine, journal)


def test_the_scenario_without_a_kill_ends_the_same(database_url: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with restarted_engine(database_url, journal) as engine:
        audit(engine, journal)
