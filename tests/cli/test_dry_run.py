"""`submit --dry-run` with a real server: it shows what would happen, and stores nothing."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.server_process import ServerProcess, server_process

NOOP = {"task": {"payload": {"noop": True}}}
WORK = {"task": {"payload": {"command": ["true"]}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("yard")) as one:
        yield one


def test_what_would_become_of_a_graph_is_printed_and_nothing_is_stored(server: ServerProcess) -> None:
    document = json.dumps({"tasks": {"build": WORK, "tick": NOOP, "tock": {**NOOP, "requires": ["tick"]}}})
    done = server.run("submit", "--dry-run", "-", document=document)
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
    assert server.output("graphs", "-o", "name") == ""


def test_a_graph_that_could_run_ends_with_0_and_is_given_as_json(server: ServerProcess) -> None:
    told = json.loads(
        server.output("submit", "--dry-run", "-o", "json", "-", document=json.dumps({"tasks": {"a": NOOP}}))
    )
    assert (told["tasks"], told["counts"]["now"], told["items"][0]["verdict"]) == (1, 1, "now")


def test_faults_are_listed_as_by_submit(server: ServerProcess) -> None:
    (server.folder / "bad.yaml").write_text("tasks:\n  a:\n    requires: [nobody]\n    task: {payload: {noop: true}}\n")
    dry, wet = (server.run("submit", *options, "bad.yaml") for options in (["--dry-run"], []))
    assert (dry.returncode, dry.stdout, dry.stderr) == (2, "", wet.stderr)
    assert "bad.yaml:3: tasks.a.requires[0]" in dry.stderr
