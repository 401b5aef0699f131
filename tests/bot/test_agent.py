"""An agent takes work from a server, has it run, and tells all of it: with real processes, over real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bot.yard import Yard, bot, served


@pytest.fixture
def yard() -> Iterator[Yard]:
    with served(Yard()) as one:
        yield one


def test_a_command_runs_and_is_reported_with_its_output(yard: Yard, tmp_path: Path) -> None:
    task = yard.add({"command": ["/bin/sh", "-c", "echo out; echo err >&2"]})
    with bot(yard, tmp_path / "state") as one:
        report = yard.report(task)
        assert one.end() == (0, "b1 is at work, with 2 slots\nending: 0 tasks are awaited; another signal ends them\n")
    assert (report.signal, report.reason, report.exit_code, report.attempt, report.fence) == ("succeed", None, 0, 1, 7)
    assert yard.printed[task] == b"out\nerr\n"
    assert [one.draining for one in yard.hellos] == [False, True]
    assert len(yard.goodbyes) == 1
    assert not list((tmp_path / "state").glob("work/*")), "nothing is left of it"
