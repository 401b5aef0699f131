"""A real process is killed around every kind of commit there is; whoever comes next finds all that was acknowledged.

The points are those that the engine names, so a new one is tested as soon as it exists: if the victim survives, nothing
passed there, and its test fails.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taskyard.engine.engine import Engine
from taskyard.engine.failpoints import names
from taskyard.lifecycle.commands import Cancel, Rerun
from tests.crash.checks import check, repeated
from tests.crash.journal import Journal
from tests.crash.scenario import PAGE, DayClock, Player, play
from tests.crash.smaller import PLACES
from tests.project.tree import ROOT

KILLED = -9
#: How long the server is away: long enough that leases are spared.
AWAY_MS = 20_000
#: Later passages: in the midst of pages,
PAGES = {"load.page": (2, 3), "note.page": (2, 3), "pass.page": (2, 3), "limit": (2,), "repair": (2, 3, 4, 5)}
#: and when there is more to do than at first. What the database adds to these is tested above.
LATER = {
    "batch": (9, 40), "load.open": (3,), "load.drop": (2,), "own": (3,), "lapse": (7,), "silence": (8,), "forget": (3,),
}  # fmt: skip


def transactions(later: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    return [(name, transaction) for name in names() for transaction in later.get(name.rpartition(".")[0], ())]


#: At night people decide and graphs begin inside tasks, come to rest, and are stopped: by commits as late as these.
NIGHT = {"batch": (63, 64), "note.page": (50,)}
#: Who is killed so often, and yet goes on each time, comes to the end.
DEATHS_MAX = 30


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in PLACES:
        monkeypatch.setattr(module, name, PAGE)


#: Lets somebody play the day on a database with a journal, and die of it at a point; says how it ended.
Victim = Callable[[str, Path, str], int]


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    run = [sys.executable, "-m", "tests.crash.victim"]
    with subprocess.Popen(run, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:

        def die(url: str, journal: Path, wish: str) -> int:
            assert maker.stdin
            assert maker.stdout
            maker.stdin.write(f"{url}\t{journal}\t{wish}\n")
            maker.stdin.flush()
            ended = int(maker.stdout.readline())
            assert ended in {0, KILLED}, "it did not die, it fell"
            return ended

        yield die


@contextmanager
def survivor(url: str, path: Path) -> Iterator[Engine]:
    """Come after a victim, and play the day to its end."""
    clock = DayClock()
    engine = Engine.open(url, clock)
    engine.writer_thread.start()
    try:
        player = Player(engine, clock, path)
        clock.later(AWAY_MS)
        play(player)
        player.journal.close()
        yield engine
    finally:
        engine.stop()


def audit(engine: Engine, path: Path) -> None:
    """All is as if nobody had died, and whoever asks again hears what was heard before."""
    journal = Journal(path)
    lines = journal.lines()
    journal.close()
    before = check(engine, lines)
    assert [again for again in repeated(engine, lines) if again[0] != again[1]] == []
    for line in lines:
        if line.call in {"Cancel", "Rerun"}:
            told = line.said["command"].items()  # as JSON, which knows no tuples
            said: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in told if name
            }
            answer = engine.cancel(Cancel(**said)) if line.call == "Cancel" else engine.rerun(Rerun(**said))
            assert answer == line.answer
    assert check(engine, lines) == before


def kill_and_go_on(victim: Victim, url: str, journal: Path, wish: str) -> None:
    assert victim(url, journal, wish) == KILLED, "nobody came by"
    with survivor(url, journal) as engine:
        audit(engine, journal)


@pytest.mark.parametrize(("name", "transaction"), [*((name, 1) for name in names()), *transactions(PAGES)])
def test_who_is_killed_there_loses_nothing_that_was_acknowledged(
    victim: Victim, database_url: str, tmp_path: Path, name: str, transaction: int
) -> None:
    kill_and_go_on(victim, database_url, tmp_path / "journal", f"{name}:exit@{transaction}")


@pytest.mark.parametrize(("name", "transaction"), [*transactions(LATER), *transactions(NIGHT)])
def test_who_is_killed_there_later_loses_nothing_either(
    victim: Victim, sqlite_url: str, tmp_path: Path, name: str, transaction: int
) -> None:
    kill_and_go_on(victim, sqlite_url, tmp_path / "journal", f"{name}:exit@{transaction}")


def test_who_is_killed_again_and_again_comes_to_the_end(victim: Victim, database_url: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    deaths = 0
    while victim(database_url, journal, "batch.after:exit@12") == KILLED:
        deaths += 1
        assert deaths < DEATHS_MAX
    assert deaths > 3
    with survivor(database_url, journal) as engine:
        audit(engine, journal)


def test_a_day_on_which_nobody_dies_ends_the_same(database_url: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with survivor(database_url, journal) as engine:
        audit(engine, journal)
