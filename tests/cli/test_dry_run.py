"""`submit --dry-run`, against a real server: what would become of a graph, and nothing is stored."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.yard import Yard, yard

NOOP = {"task": {"payload": {"noop": True}}}
WORK = {"task": {"payload": {"command": ["true"]}}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard")) as one:
        yield one


def test_what_would_become_of_a_graph_is_printed_and_nothing_is_stored(place: Yard) -> None:
    document = json.dumps({"tasks": {"build": WORK, "tick": NOOP, "tock": {**NOOP, "requires": ["tick"]}}})
    done = place.run("submit", "--dry-run", "-", document=document)
    assert done.returncode == 6
    assert [line.split(maxsplit=3) for line in done.stdout.splitlines()] == [
        ["TASK", "WHEN", "REASON", "WHY"],
        ["build", "never", "no_bot", "build cannot run: there is no bot"],
        ["tick", "now", "in_line", "tick would run at once: the server runs it itself; it is next"],
        ["tock", "after", "prerequisite", "tock would wait: it comes after tick"],
    ]
    assert done.stderr == (
        "1 task can run on no bot, 1 task would run at once, 1 task would wait for others of it; nothing was stored\n"
    )
    assert place.told("graphs", "-o", "name") == ""


def test_a_graph_that_could_run_ends_with_0_and_is_given_as_json(place: Yard) -> None:
    told = json.loads(place.told("submit", "--dry-run", "-o", "json", "-", document=json.dumps({"tasks": {"a": NOOP}})))
    assert (told["tasks"], told["counts"]["now"], told["items"][0]["verdict"]) == (1, 1, "now")


def test_faults_are_told_as_a_submission_tells_them(place: Yard) -> None:
    (place.folder / "bad.yaml").write_text("tasks:\n  a:\n    requires: [nobody]\n    task: {payload: {noop: true}}\n")
    dry, wet = (place.run("submit", *options, "bad.yaml") for options in (["--dry-run"], []))
    assert (dry.returncode, dry.stdout, dry.stderr) == (2, "", wet.stderr)
    assert "bad.yaml:3: tasks.a.requires[0]" in dry.stderr
