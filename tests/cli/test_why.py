"""The command `why`, against a real server."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.yard import Yard, yard

WORK = {"task": {"payload": {"command": ["true"]}}}
GPU = {"task": {"payload": {"command": ["true"]}, "dimensions": {"gpu": "h100", "pool": "default"}}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard")) as one:
        yield one


@pytest.fixture(scope="module")
def graph(place: Yard) -> str:
    document = {"name": "shown", "tasks": {"build": GPU, "test": {**WORK, "requires": ["build"]}}}
    return place.told("submit", "-", document=json.dumps(document))


def test_a_task_is_explained_in_a_sentence_and_a_table_by_id_and_by_label(place: Yard, graph: str) -> None:
    ids = place.client.names(graph)
    said = place.told("why", f"{graph}/test").splitlines()
    assert said[0] == ("test is unscheduled: it waits for build (waiting); build is waiting: there is no bot")
    assert said[:8] == place.told("why", ids["test"]).splitlines()[:8]
    assert ["task", ids["test"]] in [line.split() for line in said]
    assert next(line.split() for line in said if line.startswith("*"))[:4] == ["*", "build", "waiting", "no_bot"]


def test_an_explanation_is_given_as_json_and_as_the_names_of_root_causes(place: Yard, graph: str) -> None:
    ids = place.client.names(graph)
    told = json.loads(place.told("why", ids["test"], "-o", "json"))
    assert (told["why"]["reason"], told["causes"][0]["why"]["reason"], told["roots"]) == ("prerequisite", "no_bot", 1)
    assert place.told("why", ids["test"], "-o", "name") == ids["build"]
    assert place.told("why", graph, "-o", "name") == ids["build"]


def test_a_graph_is_explained_by_what_holds_it(place: Yard, graph: str) -> None:
    said = place.told("why", graph).splitlines()
    assert said[0] == "shown is running: build is waiting: there is no bot; 1 task waits for others"
    assert said[-1].split(maxsplit=3) == ["1", "waiting", "no_bot", "build is waiting: there is no bot"]


def test_what_is_not_there_cannot_be_explained(place: Yard, graph: str) -> None:
    done = place.run("why", f"{graph}/nobody")
    assert (done.returncode, done.stdout) == (5, "")
    assert f"graph {graph} has no task 'nobody'" in done.stderr
    assert place.run("why", "7ffffffffffffff8").returncode == 5
