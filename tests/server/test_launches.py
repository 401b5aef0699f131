"""Routes of launches: rights, faults, echoes, lists, dry runs, and who may see the update that a launch uses."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.server.settings import Settings
from taskyard.server.tokens import scope
from tests.engine.harness import wait_until
from tests.engine.launches import TOOLS, apply, inventory, job, plugin, project, workflow
from tests.server.running_server import RunningServer, graph, task

ON_LAUNCH: dict[str, Any] = {"update_on_launch": True}
LAUNCHES = "/api/v1/launches"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all of them."""
    file = tmp_path_factory.mktemp("launches") / "yard.db"
    with RunningServer(f"sqlite:///{file}", Settings(public_url="http://yard")) as made:
        made.hello("b1", **TOOLS)
        made.hello("b2", "lab", **TOOLS)
        apply(
            made.engine,
            project(pool="lab", **ON_LAUNCH),
            inventory(sources=[plugin("a"), plugin("b")]),
            job(project="web", allow_simultaneous=True),
            job("plain", variables={"x": 1}, survey=[{"name": "n", "type": "integer", "required": True}]),
            job("elsewhere", pool="lab"),
            workflow(nodes={"e": {"template": "elsewhere"}}),
        )
        yield made


def launch(server: RunningServer, body: dict[str, Any], **said: Any) -> Any:
    return server.ask("POST", LAUNCHES, body, **said)


def test_a_launch_says_which_updates_it_uses(server: RunningServer) -> None:
    made = launch(server, {"name": "deploy"})
    assert made.status == 201
    assert set(made.json["nameMapping"]) == {"project:web", "job"}
    (update,) = made.json["updates"]
    assert (update["resource"], update["freshness"]) == ("project:web", "update")
    shown = server.get(f"/api/v1/graphs/{made.json['graph_id']}")
    assert (shown["launch"]["name"], shown["launch"]["launch_type"]) == ("deploy", "manual")
    (link,) = shown["links"]
    assert (link["label"], link["task_id"]) == ("project:web", update["task_id"])
    assert server.get(f"/api/v1/graphs/{update['graph_id']}")["launch"]["launch_type"] == "dependent"


def test_variables_that_were_typed_are_stored_as_what_they_mean(server: RunningServer) -> None:
    made = launch(server, {"name": "plain", "texts": {"n": "5", "x": "seven"}}).json
    assert server.get(f"/api/v1/graphs/{made['graph_id']}")["launch"]["variables"] == {"n": 5, "x": "seven"}
    again = server.ask("POST", f"/api/v1/graphs/{made['graph_id']}/relaunch", {})
    assert again.status == 201, again.body


def test_a_repeated_launch_is_an_echo(server: RunningServer) -> None:
    headers = {"Idempotency-Key": "once"}
    first = launch(server, {"name": "plain", "variables": {"n": 1}}, headers=headers)
    again = launch(server, {"name": "plain", "variables": {"n": 1}}, headers=headers)
    other = launch(server, {"name": "plain", "variables": {"n": 2}}, headers=headers)
    assert (first.status, again.status, other.status) == (201, 200, 409)
    assert again.json["graph_id"] == first.json["graph_id"]


@pytest.mark.parametrize(
    ("body", "status", "paths"),
    [
        ({"name": "unknown"}, 404, []),
        ({}, 400, ["name"]),
        ({"name": "plain"}, 400, ["variables"]),
        ({"name": "plain", "variables": {"n": "one", "y": 2}}, 400, ["variables.n", "variables.y"]),
        ({"name": "plain", "variables": [1], "kind": "pool"}, 400, ["variables", "kind"]),
        ({"name": "plain", "variables": {"n": 1}, "limit": "web"}, 400, ["limit"]),
        ({"name": "deploy", "module": "ping"}, 400, ["module"]),
        ({"name": "hosts", "kind": "ad_hoc"}, 400, ["module"]),
        ({"name": "plain", "texts": {"n": "one", "y": "2"}}, 400, ["variables.n", "variables.y"]),
        ({"name": "plain", "variables": {"n": 1}, "texts": {"n": "1", "x": 2}}, 400, ["texts.n", "texts.x"]),
        ({"name": "web", "kind": "project", "limit": "a", "variables": {"x": 1}}, 400, ["variables", "limit"]),
        ({"name": "hosts", "kind": "inventory", "check": True}, 400, ["check"]),
        ({"name": "hosts", "kind": "ad_hoc", "module": "ping"}, 400, ["source:hosts/a", "source:hosts/b"]),
        ({"name": "none", "kind": "project"}, 400, ["name"]),
        ({"name": "hosts/none", "kind": "source"}, 400, ["name"]),
        ({"name": "none", "kind": "inventory"}, 404, []),
    ],
)
def test_a_launch_that_cannot_be_is_refused_with_all_its_faults(
    server: RunningServer, body: dict[str, Any], status: int, paths: list[str]
) -> None:
    answer = launch(server, body)
    assert (answer.status, sorted(fault["path"] for fault in answer.json["faults"])) == (status, sorted(paths))


def test_a_dry_run_stores_nothing(server: RunningServer) -> None:
    before = server.get(LAUNCHES)["items"]
    answer = launch(server, {"name": "deploy", "dry_run": True})
    assert (answer.status, answer.json["graph_id"]) == (200, None)
    assert [one["resource"] for one in answer.json["updates"]] == ["project:web"]
    assert set(answer.json["document"]["tasks"]) == {"project:web", "job"}
    assert server.get(LAUNCHES)["items"] == before


def test_launches_are_listed_with_their_status(server: RunningServer) -> None:
    launch(server, {"name": "plain", "variables": {"n": 6}})
    made = launch(server, {"name": "plain", "variables": {"n": 7}}).json
    (first, *_) = server.get(f"{LAUNCHES}?kind=job_template&name=plain")["items"]
    assert (first["graph_id"], first["variables"], first["launch_type"]) == (made["graph_id"], {"n": 7}, "manual")
    wait_until(lambda: server.get(f"{LAUNCHES}?name=plain&limit=1")["items"][0]["status"] in {"waiting", "pending"})
    page = server.get(f"{LAUNCHES}?limit=1")
    assert len(page["items"]) == 1
    assert server.get(f"{LAUNCHES}?limit=1&cursor={page['next']}")["items"] != page["items"]


def test_an_inventory_is_updated_source_by_source(server: RunningServer) -> None:
    answer = launch(server, {"name": "hosts", "kind": "inventory"})
    assert (answer.status, len(answer.json["graph_ids"])) == (201, 2)
    names = [server.get(f"/api/v1/graphs/{id}")["launch"]["name"] for id in answer.json["graph_ids"]]
    assert names == ["hosts/a", "hosts/b"]


def test_a_launch_needs_the_right_in_the_pools_of_all_that_it_launches(server: RunningServer) -> None:
    token = server.token(scope("default", "submit"))
    assert launch(server, {"name": "plain", "variables": {"n": 1}}, token=token).status == 201
    assert launch(server, {"name": "elsewhere"}, token=token).status == 403
    assert launch(server, {"name": "release"}, token=token).status == 403
    both = server.token(scope("default", "submit"), scope("lab", "submit"))
    assert launch(server, {"name": "release"}, token=both).status == 201


def test_a_running_task_launches_what_runs_in_the_pools_of_its_graph(server: RunningServer) -> None:
    made = server.submit(graph(a=task(dimensions={"pool": "lab"}, priority=50)))
    (lease,) = server.claim("b2", 1)
    assert lease.task == made.key("a")
    token = server.run_token(lease)
    plain = launch(server, {"name": "plain", "variables": {"n": 1}}, token=token)
    assert (plain.status, b"pool:default:submit" in plain.body) == (403, True)
    assert launch(server, {"name": "release"}, token=token).status == 403
    dry = launch(server, {"name": "elsewhere", "dry_run": True}, token=token)
    assert (dry.status, dry.json["graph_id"]) == (200, None)
    answer = launch(server, {"name": "elsewhere"}, token=token)
    assert answer.status == 201
    shown = server.get(f"/api/v1/graphs/{answer.json['graph_id']}")["launch"]
    assert shown["actor"] == f"task {made.tasks['a']}-1"
    assert server.ask("GET", f"/api/v1/graphs/{answer.json['graph_id']}", token=token).status == 403
    assert server.ask("POST", f"/api/v1/graphs/{answer.json['graph_id']}/relaunch", {}, token=token).status == 403
    server.end(lease, bot="b2")
    assert launch(server, {"name": "elsewhere"}, token=token).status == 401


def test_who_may_see_a_launch_may_see_the_update_that_it_uses(server: RunningServer) -> None:
    made = launch(server, {"name": "deploy"}).json
    update = made["updates"][0]
    reader, stranger = server.token(scope("default", "read")), server.token(scope("other", "read"))
    for path in (f"/api/v1/graphs/{update['graph_id']}", f"/api/v1/tasks/{update['task_id']}/why"):
        assert server.ask("GET", path, token=reader).status == 200
        assert server.ask("GET", path, token=stranger).status == 403
    canceler = server.token(scope("default", "cancel"))
    assert server.ask("POST", f"/api/v1/graphs/{update['graph_id']}/cancel", {}, token=canceler).status == 403


def test_why_names_the_rule_that_holds_an_update(server: RunningServer) -> None:
    first = launch(server, {"name": "web", "kind": "project"}).json["nameMapping"]["project:web"]
    second = launch(server, {"name": "web", "kind": "project"}).json["nameMapping"]["project:web"]

    def said() -> str:
        found: str = server.get(f"/api/v1/tasks/{second}/why")["sentence"]
        return found

    wait_until(lambda: "one project update per project: web is being updated by project:web" in said())
    assert first or second


def test_a_launch_is_launched_again(server: RunningServer) -> None:
    made = launch(server, {"name": "plain", "variables": {"n": 3}}).json
    again = server.ask("POST", f"/api/v1/graphs/{made['graph_id']}/relaunch", {})
    assert again.status == 201
    shown = server.get(f"/api/v1/graphs/{again.json['graph_id']}")["launch"]
    assert (shown["launch_type"], shown["relaunch_of"]) == ("relaunch", made["graph_id"])
    whole = server.ask("POST", f"/api/v1/graphs/{made['graph_id']}/relaunch", {"from_failed": True})
    assert whole.status == 409


def test_the_catalogue_shows_the_last_launch_of_templates_and_the_last_updates(server: RunningServer) -> None:
    first = launch(server, {"name": "plain", "variables": {"n": 1}}).json["graph_id"]
    last = launch(server, {"name": "plain", "variables": {"n": 2}}).json["graph_id"]
    update = launch(server, {"kind": "project", "name": "web"}).json["graph_id"]
    source = launch(server, {"kind": "source", "name": "hosts/b"}).json["graph_id"]

    def shown(kind: str, token: str = server.admin) -> dict[str, list[str]]:
        found = server.get(f"/api/v1/catalogue?kind={kind}&detail=launches&limit=200", token=token)["items"]
        assert all(one["document"]["kind"] == kind for one in found)
        return {one["name"]: [run["graph_id"] for run in one["launches"]] for one in found}

    assert first != last
    assert shown("job_template")["plain"] == [last]
    assert shown("project")["web"] == [update]
    assert source in shown("inventory")["hosts"]
    assert len(shown("inventory")["hosts"]) <= 2, "one for each source"
    assert shown("schedule") == {}
    reader = server.token("pool:default:read")
    assert shown("job_template", reader)["plain"] == [last]
    assert "web" not in shown("project", reader), "it is in a pool of others"
