"""Single requests: ours, and Swarming's."""

from typing import Any

import pytest

from taskyard.core.graph import validate
from taskyard.server.routes import requests
from tests.server.running_server import RunningServer

SWARMING: dict[str, Any] = {
    "name": "one of Swarming's",
    "priority": 30,
    "tags": ["team:core", "url:http://a"],
    "task_slices": [
        {
            "expiration_secs": "600",
            "wait_for_capacity": True,
            "properties": {
                "command": ["python", "run.py"],
                "dimensions": [
                    {"key": "pool", "value": "default"},
                    {"key": "os", "value": "Linux"},
                    {"key": "os", "value": "Debian"},
                ],
                "env": [{"key": "A", "value": "b"}],
                "execution_timeout_secs": 3600,
                "io_timeout_secs": "60",
                "grace_period_secs": 30,
                "idempotent": True,
                "outputs": ["out.txt"],
            },
        },
        {"expiration_secs": 60, "properties": {"command": ["true"], "dimensions": {"pool": "default"}}},
    ],
}


def test_a_request_is_a_graph_of_one(server: RunningServer) -> None:
    body = {"name": "one", "task": {"payload": {"command": ["true"]}, "dimensions": {"pool": "default"}}}
    answer = server.ask("POST", "/api/v1/requests", body, headers={"Idempotency-Key": "k"})
    assert (answer.status, list(answer.json["nameMapping"])) == (201, ["request"])
    assert server.get(f"/api/v1/graphs/{answer.json['graph_id']}")["name"] == "one"
    assert server.ask("POST", "/api/v1/requests", body, headers={"Idempotency-Key": "k"}).status == 200


def test_a_request_of_swarming_keeps_all_its_fields(server: RunningServer) -> None:
    found = validate(requests.as_document(SWARMING, lambda _: ()))
    assert found.faults == ()
    assert found.graph is not None
    task = found.graph.tasks["request"]
    assert (task.priority, task.idempotent, task.tags) == (30, True, (("team", "core"), ("url", "http://a")))
    first, second = task.slices
    assert first.dimensions == (("os", ("Debian", "Linux")), ("pool", ("default",)))
    assert (first.expires_ms, first.wait_for_capacity, second.expires_ms) == (600_000, True, 60_000)
    assert dict(first.payload)["env"] is not None
    answer = server.ask("POST", "/api/v1/requests", SWARMING)
    assert answer.status == 201, answer.body


def test_a_request_keeps_reruns_routing_user_and_every_tag(either_server: RunningServer) -> None:
    body = {
        "name": "all of it",
        "user": "ann",
        "reruns": 3,
        "routing": "night",
        "tags": ["team:core", "team:infra", "url:http://a", "team:core"],
        "properties": {"command": ["true"], "dimensions": {"pool": "default"}},
    }
    made = either_server.ask("POST", "/api/v1/requests", body)
    assert made.status == 201, made.body
    shown = either_server.get(f"/api/v1/tasks/{made.json['nameMapping']['request']}")
    tags = [["team", "core"], ["team", "infra"], ["url", "http://a"], ["user", "ann"]]
    assert (shown["rerunsAllowed"], shown["routing"].split(".")[2], shown["definition"]["tags"]) == (3, "night", tags)
    own = {"user": "ann", "reruns": 1, "task": {"payload": {"command": ["true"]}, "tags": {"team": "core"}}}
    made = either_server.ask("POST", "/api/v1/requests", own)
    shown = either_server.get(f"/api/v1/tasks/{made.json['nameMapping']['request']}")
    assert (shown["rerunsAllowed"], shown["definition"]["tags"]) == (1, [["team", "core"], ["user", "ann"]])


def test_every_fault_of_a_request_is_listed_at_once(server: RunningServer) -> None:
    body = {
        "odd": 1,
        "user": 7,
        "priority": 256,
        "reruns": -1,
        "tags": ["x"],
        "task_slices": [{"properties": {"command": [], "env": [1]}}, 5],
    }
    wrong = ["odd", "user", "task.priority", "reruns", "tags[0]", "task_slices[0].properties.env[0]", "task_slices[1]"]
    answer = server.ask("POST", "/api/v1/requests", body)
    assert (answer.status, sorted(answer.paths)) == (400, sorted([*wrong, "task.slices[0].payload.command"]))
    faulty = b'{"odd": 1, "odd": 2, "priority": 256, "properties": {"command": ["true"]}}'
    assert {"odd", "task.priority"} < set(server.ask("POST", "/api/v1/requests", faulty).paths)


def test_properties_may_stand_without_slices(server: RunningServer) -> None:
    body = {"name": "x", "expiration_secs": 60, "properties": {"command": ["true"], "dimensions": {"pool": "default"}}}
    assert server.ask("POST", "/api/v1/requests", body).status == 201


def test_faults_have_their_paths_in_the_request(server: RunningServer) -> None:
    answer = server.ask("POST", "/api/v1/requests", {"name": "x", "task": {"payload": {"command": []}, "odd": 1}})
    assert (answer.status, sorted(answer.paths)) == (400, ["task.odd", "task.payload.command"])


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"service_account": "x"}, "service_account"),
        ({"task_slices": []}, "task_slices"),
        ({"task_slices": [1]}, "task_slices[0]"),
        ({"task_slices": [{"properties": {"cipd_input": {}}}]}, "task_slices[0].properties.cipd_input"),
        ({"task_slices": [{"properties": {"env": [1]}}]}, "task_slices[0].properties.env[0]"),
        ({"task_slices": [{"properties": {}, "expiration_secs": "x"}]}, "task_slices[0].expiration_secs"),
        ({"tags": ["x"]}, "tags[0]"),
        ({"task": {}}, "priority"),
    ],
)
def test_what_is_not_supported_is_refused_and_not_ignored(
    server: RunningServer, change: dict[str, Any], path: str
) -> None:
    answer = server.ask("POST", "/api/v1/requests", SWARMING | change)
    assert answer.status == 400
    assert path in answer.paths
