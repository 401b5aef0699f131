"""The catalogue over HTTP: apply, dry run, lists, versions, deletions, rights by pool, and hostile documents."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.core.catalogue.documents import ALL, INVENTORY, JOB, LIMIT, PAYLOAD_JOB, POOL, PROJECT, SCHEDULE, WORKFLOW
from tests.server.running_server import Answer, RunningServer

#: The pool that every server has.
DEFAULT = ("pool", "default")


def apply(server: RunningServer, *documents: Any, status: int = 200, **said: Any) -> Any:
    """Apply documents and return what the server says of each."""
    answer = send(server, *documents, **said)
    assert answer.status == status, answer.body
    return [(one["name"], one["action"], one["version"]) for one in answer.json["items"]] if status == 200 else answer


def send(server: RunningServer, *documents: Any, token: str | None = "", **fields: Any) -> Answer:
    body = {"documents": list(documents), **fields}
    return server.ask("POST", "/api/v1/catalogue", body, token=token)


def listed(server: RunningServer, query: str = "", **said: Any) -> list[tuple[str, str]]:
    found = server.get(f"/api/v1/catalogue?limit=200&{query}", **said)
    return [place for one in found["items"] if (place := (one["kind"], one["name"])) != DEFAULT]


def in_pool(pool: str, *documents: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "pool": pool} for one in documents]


def test_documents_are_applied_listed_shown_and_deleted(either_server: RunningServer) -> None:
    server = either_server
    dry = send(server, *ALL, dry_run=True)
    assert dry.json["dry_run"] is True
    assert {one["action"] for one in dry.json["items"]} == {"create"}
    assert listed(server) == []
    assert ("site", "create", 1) in apply(server, *ALL)
    assert {action for _, action, _ in apply(server, *ALL)} == {"unchanged"}
    assert ("lab", "unchanged", 0) in apply(server, POOL), "settings have no versions"
    assert listed(server) == sorted((one["kind"], one["name"]) for one in ALL)
    assert listed(server, "kind=job_template") == [("job_template", "backup"), ("job_template", "deploy")]
    shown = server.get("/api/v1/catalogue/project/site")
    assert (shown["version"], shown["pool"], shown["document"]) == (1, "default", PROJECT)
    whole = server.get("/api/v1/catalogue?detail=whole&limit=200")["items"]
    assert {one["name"]: one["document"] for one in whole if one["kind"] == "limit"} == {"licences": LIMIT}
    assert server.ask("DELETE", "/api/v1/catalogue/schedule/nightly").status == 204
    assert server.ask("DELETE", "/api/v1/catalogue/schedule/nightly").status == 404
    refused = server.ask("DELETE", "/api/v1/catalogue/project/site")
    assert (refused.status, refused.json["code"]) == (409, "conflict")
    assert "inventory lab, job_template deploy" in refused.json["detail"]


def test_pages_of_the_list_join_documents_and_settings(server: RunningServer) -> None:
    apply(server, *ALL)
    found, cursor = [], ""
    for _ in range(len(ALL)):
        page = server.get(f"/api/v1/catalogue?limit=2{cursor}")
        found += [place for one in page["items"] if (place := (one["kind"], one["name"])) != DEFAULT]
        assert len(page["items"]) <= 2
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == sorted((one["kind"], one["name"]) for one in ALL)


def test_versions_tell_who_changed_what_and_when_it_was_deleted(server: RunningServer) -> None:
    apply(server, PROJECT)
    apply(server, {**PROJECT, "branch": "next"})
    server.ask("DELETE", "/api/v1/catalogue/project/site")
    first = server.get("/api/v1/catalogue-versions/project/site?limit=2")
    rest = server.get(f"/api/v1/catalogue-versions/project/site?cursor={first['next']}")
    versions = [*first["items"], *rest["items"]]
    assert [(one["version"], (one["document"] or {}).get("branch")) for one in versions] == [
        (3, None),
        (2, "next"),
        (1, None),
    ]
    assert [one["document"] is None for one in versions] == [True, False, False]
    assert all(one["changed_by"] for one in versions)
    assert server.ask("GET", "/api/v1/catalogue-versions/project/none").status == 404


def test_every_fault_of_all_documents_is_listed_with_its_path_and_nothing_is_stored(server: RunningServer) -> None:
    answer = apply(server, PROJECT, {**JOB, "forks": 0}, {**SCHEDULE, "cron": None}, WORKFLOW, status=400)
    assert answer.paths == [
        "documents[1].forks",
        "documents[2].cron",
        "documents[3].nodes.backup.template",
        "documents[3].nodes.deploy.template",
    ]
    assert listed(server) == []


@pytest.mark.parametrize(
    "body", [{}, [], {"documents": {}}, {"documents": []}, {"documents": [PROJECT], "dry": True}, {"documents": [[]]}]
)
def test_a_faulty_request_is_refused(server: RunningServer, body: object) -> None:
    assert server.ask("POST", "/api/v1/catalogue", body).status == 400


def test_a_right_in_one_pool_changes_nothing_of_another(server: RunningServer) -> None:
    ops = server.token("pool:ops:catalogue", "pool:ops:read", "pool:ops:submit")
    apply(server, *in_pool("lab", PROJECT))
    assert apply(server, *in_pool("lab", PROJECT), token=ops, status=403).json["detail"].endswith("pool:lab:catalogue")
    stolen = apply(server, *in_pool("ops", PROJECT), token=ops, status=400)
    assert stolen.paths == ["documents[0].name"]
    assert server.ask("DELETE", "/api/v1/catalogue/project/site", token=ops).status == 404
    reader = server.token("pool:ops:catalogue", "pool:lab:read")
    assert server.ask("DELETE", "/api/v1/catalogue/project/site", token=reader).status == 403
    assert server.get("/api/v1/catalogue/project/site")["pool"] == "lab"
    assert apply(server, *in_pool("ops", {**PROJECT, "name": "own"}), token=ops) == [("own", "create", 1)]


def test_what_may_not_be_read_is_neither_referred_to_nor_shown(server: RunningServer) -> None:
    ops = server.token("pool:ops:catalogue", "pool:ops:read", "pool:ops:submit")
    apply(server, *in_pool("lab", PROJECT))
    job = {"kind": "job_template", "name": "own", "project": "site", "playbook": "x.yml", "pool": "ops"}
    answer = apply(server, job, token=ops, status=400)
    assert answer.paths == ["documents[0].project"]
    unknown = apply(server, {**job, "project": "none"}, token=ops, status=400)
    assert answer.json["faults"][0]["message"].replace("site", "none") == unknown.json["faults"][0]["message"]
    assert listed(server, token=ops) == []
    for path in ("catalogue", "catalogue-versions"):
        assert server.ask("GET", f"/api/v1/{path}/project/site", token=ops).status == 404
    both = server.token("pool:ops:catalogue", "pool:ops:read", "pool:lab:read")
    assert apply(server, job, token=both) == [("own", "create", 1)]


def test_what_tasks_of_a_document_need_is_needed_to_apply_it(server: RunningServer) -> None:
    def scopes_lacked(document: dict[str, Any], *scopes: str) -> str:
        token = server.token("pool:ops:catalogue", "pool:ops:read", *scopes)
        answer = apply(server, {**document, "pool": "ops"}, token=token, status=403)
        return str(answer.json["detail"])

    secret = {**PAYLOAD_JOB, "payload": {"command": ["x"], "secrets": {"TOKEN": "deploy"}}}
    assert "pool:ops:secrets" in scopes_lacked(secret)
    assert "pool:ops:urgent" in scopes_lacked({**PAYLOAD_JOB, "priority": 15})
    inline = {"a": {"task": {"dimensions": {"pool": "lab"}, "payload": {"command": ["x"]}}}}
    assert "pool:lab:submit" in scopes_lacked({**WORKFLOW, "nodes": inline})
    own = server.token("pool:ops:catalogue", "pool:ops:secrets")
    assert apply(server, {**secret, "pool": "ops"}, token=own) == [("backup", "create", 1)]


def test_settings_need_the_rights_that_they_always_need(server: RunningServer) -> None:
    pool_admin, author = server.token("pool:lab:admin"), server.token("pool:lab:catalogue")
    assert apply(server, POOL, token=author, status=403).json["detail"].endswith("pool:lab:admin")
    assert apply(server, LIMIT, token=pool_admin, status=403).json["detail"].endswith("admin")
    assert apply(server, POOL, token=pool_admin) == [("lab", "create", 0)]
    assert {one["name"]: one["capacity"] for one in server.get("/api/v1/pools")["items"]}["lab"] == 5
    reader = server.token("pool:other:read")
    apply(server, LIMIT)
    assert listed(server, token=reader) == [("limit", "licences")]
    assert server.ask("DELETE", "/api/v1/catalogue/pool/lab").status == 409


HOSTILE = [
    "../../etc/passwd",
    "a b/..%2f",
    "\u202eright",
    "\x1b[31mred",
    "nul\x00",
    "\ud800",
    "x" * 101,
    "' OR 1=1 --",
    "<script>",
    "%s%n{0}",
    "-rf",
]


def test_a_hostile_name_is_refused_or_kept_as_it_is(either_server: RunningServer) -> None:
    server = either_server
    for name in HOSTILE:
        kept = send(server, {**PROJECT, "name": name}).status == 200
        assert listed(server) == ([("project", name)] if kept else []), name
        path = quote(name.encode("utf-8", "surrogatepass"), safe="")
        if kept:
            assert server.get(f"/api/v1/catalogue/project/{path}")["document"]["name"] == name
            assert server.ask("DELETE", f"/api/v1/catalogue/project/{path}").status == 204
        for method, route in (("GET", "catalogue"), ("GET", "catalogue-versions"), ("DELETE", "catalogue")):
            for kind in ("project", path):
                status = server.ask(method, f"/api/v1/{route}/{kind}/{path}").status
                assert status in ((200, 404) if route == "catalogue-versions" else (400, 404)), (name, method, route)


def test_a_repeat_with_the_same_key_is_an_echo(server: RunningServer) -> None:
    def keyed(*documents: Any) -> Answer:
        return server.ask(
            "POST", "/api/v1/catalogue", {"documents": list(documents)}, headers={"Idempotency-Key": "k1"}
        )

    assert keyed(PROJECT).json["items"][0]["action"] == "create"
    assert keyed(PROJECT).json["items"][0] | {"action": ""} == keyed(PROJECT).json["items"][0] | {"action": ""}
    assert keyed(PROJECT).json["items"][0]["version"] == 1
    assert keyed({**INVENTORY, "sources": []}).status == 409
