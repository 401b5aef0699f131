"""The life cycle does what the model says, on both databases, at once and in small pages."""

import shutil
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from taskyard.core.states import ARROWS, GraphState, Signal
from taskyard.lifecycle import failure_handlers, propagate, selection, submit, transaction
from taskyard.lifecycle.cancel import CANCEL
from taskyard.lifecycle.failure_handlers import PROPAGATE, REPORT_RUN, REPORT_TO_FAILURES
from taskyard.lifecycle.rerun import RERUN
from tests.effort import SOAK, tries
from tests.model.machine import Lives
from tests.model.paged import EDGES_MAX, LOOKED_MAX, PAGE_MAX, TOLD_MAX, PagedLives

#: A failing example is made shorter before it is told, which takes its time.
pytestmark = pytest.mark.timeout(7_200 if SOAK else 900)

#: How long an example is.
STEPS = 40
#: The seeds of rounds of examples; the one that shows what is rarest comes first. After a few rounds everything has
#: happened; if it has not after all of these, it never will.
ROUNDS = [8, *range(8), *range(9, 24)]
#: What has to happen if the examples are worth anything: every arrow there is, and whatever changes nothing.
ARROWS_TAKEN = {
    f"{arrow.source} {arrow.signal} {end}"
    for arrow in ARROWS
    for end in (arrow.target, arrow.again)
    if end is not None and arrow.signal is not Signal.REUSE
}
HAPPENED = {
    "a bot ended an attempt at its deadline",
    "a bot said that it had begun",
    "a late report was refused",
    "a lease outlived an outage",
    "a lease was not lengthened",
    "a lease was renewed",
    "a load was dropped",
    "a load was opened",
    "a new session lost an attempt",
    "a page was taken up",
    "a poll was repeated",
    "a report was repeated",
    "a stake kept a task back",
    "a submission was repeated",
    "a wish was repeated",
    "an extension was refused",
    "an extension was repeated",
    "an old session was refused",
    "another body was refused",
    *(f"a note to {kind} was left open" for kind in (PROPAGATE, REPORT_TO_FAILURES, REPORT_RUN, CANCEL, RERUN)),
    *(f"a graph is {state}" for state in GraphState),
}


class Databases:
    """Empty databases, as many as are wanted."""

    def __init__(self, kind: str, request: pytest.FixtureRequest) -> None:
        self.server = request.getfixturevalue("postgres") if kind == "postgres" else None
        self.template: Path = request.getfixturevalue("sqlite_template")
        self.folder: Path = request.getfixturevalue("tmp_path")
        self.numbers = count()
        # PostgreSQL answers each of the thousand questions of an example from another process.
        self.examples = tries(30 if self.server is None else 12)

    def fresh(self) -> str:
        if self.server is not None:
            return str(self.server.fresh())
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
    make_pages_small(monkeypatch)


def make_pages_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "PROPAGATED_MAX", TOLD_MAX)
    monkeypatch.setattr(selection, "PROPAGATED_MAX", TOLD_MAX)
    monkeypatch.setattr(selection, "PAGE_MAX", PAGE_MAX)
    monkeypatch.setattr(selection, "LOOKED_MAX", LOOKED_MAX)
    monkeypatch.setattr(selection, "ROWS_MAX", LOOKED_MAX)
    monkeypatch.setattr(submit, "PAGE_MAX", PAGE_MAX)
    monkeypatch.setattr(submit, "SEEN_MAX", EDGES_MAX)
    monkeypatch.setattr(propagate, "PAGE_MAX", EDGES_MAX)
    monkeypatch.setattr(failure_handlers, "PAGE_MAX", EDGES_MAX)


def play(machine: type[Lives], examples: int, **said: Any) -> Counter[str]:
    """Play so many examples; say what happened in them."""
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=STEPS, **said))
    return machine.happened


def test_what_happens_is_what_the_model_says(databases: Databases) -> None:
    play(databases.machine(Lives), databases.examples)


@pytest.mark.usefixtures("small_pages")
def test_what_is_told_page_by_page_ends_where_the_model_wants_it(databases: Databases) -> None:
    play(databases.machine(PagedLives), databases.examples)


def test_the_examples_are_worth_something(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play the same examples each time, a round after the other, until everything has happened."""
    databases, happened, missing = Databases("sqlite", request), Counter[str](), ARROWS_TAKEN | HAPPENED
    for number in ROUNDS:
        if not missing:
            break
        happened += play(seed(number)(databases.machine(Lives)), 30, database=None)
        with monkeypatch.context() as patch:
            make_pages_small(patch)
            happened += play(seed(number)(databases.machine(PagedLives)), 12, database=None)
        missing = {what for what in missing if not happened[what]}
    assert missing == set()
