"""The life cycle does what the model says, on both databases, at once and in small pages."""

import shutil
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from taskyard.core.machine import ARROWS
from taskyard.core.words import GraphState, Signal
from taskyard.lifecycle import contest, moves, reach, submit, telling
from tests.model.machine import Lives
from tests.model.paged import EDGES_MAX, PAGE_MAX, STIRS_MAX, TOLD_MAX, PagedLives
from tests.postgres import Postgres

#: How long an example is.
STEPS = 40
#: What has to happen if the examples are worth anything: every arrow there is, and whatever changes nothing.
ARROWS_TAKEN = {
    f"{arrow.source} {arrow.signal} {end}"
    for arrow in ARROWS
    for end in (arrow.target, arrow.again)
    if end is not None and arrow.signal is not Signal.REUSE
}
HAPPENED = {
    "a late report was refused",
    "a lease outlived an outage",
    "a lease was renewed",
    "a load was dropped",
    "a load was opened",
    "a new session lost an attempt",
    "a page was taken up",
    "a poll was repeated",
    "a report was repeated",
    "a submission was repeated",
    "a wish was repeated",
    "an extension was refused",
    "an extension was repeated",
    "an old session was refused",
    "another body was refused",
    "notes were left open",
    *(f"a graph is {state}" for state in GraphState),
}


class Databases:
    """Empty databases, as many as are wanted."""

    def __init__(self, kind: str, request: pytest.FixtureRequest) -> None:
        self.server: Postgres | None = request.getfixturevalue("postgres") if kind == "postgres" else None
        self.template: Path = request.getfixturevalue("sqlite_template")
        self.folder: Path = request.getfixturevalue("tmp_path")
        self.numbers = count()

    def fresh(self) -> str:
        if self.server is not None:
            return self.server.fresh()
        return f"sqlite:///{shutil.copy(self.template, self.folder / f'{next(self.numbers)}.db')}"

    def drop(self, url: str) -> None:
        if self.server is not None:
            self.server.drop(url)
        else:
            Path(url.removeprefix("sqlite:///")).unlink()

    def machine(self, base: type[Lives]) -> type[Lives]:
        """Make a machine that plays on these databases and counts for itself."""
        return type(base.__name__, (base,), {"fresh": self.fresh, "drop": self.drop, "happened": Counter()})


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest) -> Databases:
    return Databases(request.param, request)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "TOLD_MAX", TOLD_MAX)
    monkeypatch.setattr(reach, "TOLD_MAX", TOLD_MAX)
    monkeypatch.setattr(reach, "PAGE_MAX", PAGE_MAX)
    monkeypatch.setattr(submit, "PAGE_MAX", PAGE_MAX)
    monkeypatch.setattr(telling, "PAGE_MAX", EDGES_MAX)
    monkeypatch.setattr(contest, "STIRS_MAX", STIRS_MAX)


def play(machine: type[Lives], examples: int) -> Counter[str]:
    """Play so many examples; say what happened in them."""
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=STEPS))
    return machine.happened


def test_what_happens_is_what_the_model_says(databases: Databases) -> None:
    play(databases.machine(Lives), 40)


@pytest.mark.usefixtures("small_pages")
def test_what_is_told_page_by_page_ends_where_the_model_wants_it(databases: Databases) -> None:
    play(databases.machine(PagedLives), 30)


def test_the_examples_are_worth_something(request: pytest.FixtureRequest) -> None:
    """The same examples each time, so that what is missing is missing because somebody changed something."""
    databases = Databases("sqlite", request)
    happened = play(seed(1)(databases.machine(Lives)), 120)
    request.getfixturevalue("small_pages")
    happened += play(seed(1)(databases.machine(PagedLives)), 40)
    assert {what for what in ARROWS_TAKEN | HAPPENED if not happened[what]} == set()
