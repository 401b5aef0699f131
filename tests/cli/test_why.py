"""The command `why` with a real server."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.server_process import ServerProcess, server_process

WORK = {"task": {"payload": {"command": ["true"]}}}
GPU = {"task": {"payload": {"command": ["true"]}, "dimensions": {"gpu": "h100", "pool": "default"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("yard")) as one:
        yield one


@pytest.fixture(scope="module")
def graph(server: ServerProcess) -> str:
    document = {"name": "shown", "tasks": {"build": GPU, "test": {**WORK, "requires": ["build"]}}}
    return server.output("submit", "-", document=json.dumps(document))


def test_a_task_is_explained_in_a_sentence_and_a_table_by_id_and_by_label(server: ServerProcess, graph: str) -> None:
    ids = server.client.names(graph)
    said = server.output("why", f"{graph}/test").splitlines()
    assert said[0] == ("test is unscheduled: it waits for build (waiting); build is waiting: there is no bot")
    assert said[:8] == server.output("why", ids["test"]).splitlines()[:8]
    assert ["task", ids["test"]] in [line.split() for line in said]
    assert not [line for line in said if line.startswith("before it")]
    assert next(line.split() for line in said if line.startswith("*"))[:4] == ["*", "build", "waiting", "no_bot"]


def test_an_explanation_is_given_as_json_and_as_the_names_of_root_causes(server: ServerProcess, graph: str) -> None:
    ids = server.client.names(graph)
    told = json.loads(server.output("why", ids["test"], "-o", "json"))
    assert (told["why"]["reason"], told["causes"][0]["why"]["reason"], told["roots"]) == ("prerequisite", "no_bot", 1)
    assert server.output("why", ids["test"], "-o", "name") == ids["build"]
    assert server.output("why", graph, "-o", "name") == ids["build"]


def test_a_graph_is_explained_by_what_holds_it(server: ServerProcess, graph: str) -> None:
    said = server.output("why", graph).splitlines()
    assert said[0] == "shown is running: build is waiting: there is no bot; 1 task waits for others"
    assert said[-1].split(maxsplit=3) == ["1", "waiting", "no_bot", "build is waiting: there is no bot"]


def test_a_missing_task_cannot_be_explained(server: ServerProcess, graph: str) -> None:
    done = server.run("why", f"{graph}/nobody")
    assert (done.returncode, done.stdout) == (5, "")
    assert f"graph {graph} has no task 'nobody'" in done.stderr
    assert server.run("why", "7ffffffffffffff8").returncode == 5
