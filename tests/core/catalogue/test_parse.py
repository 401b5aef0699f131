"""Documents of the catalogue: what each kind takes, and that every fault of all of them is listed at once."""

import json
from typing import Any

import pytest

from taskyard.core.catalogue.model import (
    DOCUMENTS_MAX,
    REFERENCES_MAX,
    TASKS_MAX,
    Document,
    DocumentKind,
    Inventory,
    InventorySource,
    JobTemplate,
    PoolSettings,
    Project,
    Reference,
    WorkflowTemplate,
    content_digest,
    references,
)
from taskyard.core.catalogue.parse import read_documents, stored_document, task_in_pool
from tests.core.catalogue.documents import (
    ALL,
    INVENTORY,
    JOB,
    LIMIT,
    PAYLOAD_JOB,
    POOL,
    PROJECT,
    SCHEDULE,
    SYSTEM,
    WORKFLOW,
    document,
    faults,
    read,
    with_fields,
)
from tests.each_row import each_row


def test_one_document_of_each_kind_is_read() -> None:
    found = [entry.document for entry in read(*ALL).entries]
    assert [one.kind for one in found] == [
        DocumentKind.PROJECT, DocumentKind.INVENTORY, DocumentKind.JOB_TEMPLATE, DocumentKind.JOB_TEMPLATE,
        DocumentKind.WORKFLOW_TEMPLATE, DocumentKind.SYSTEM_JOB_TEMPLATE, DocumentKind.SCHEDULE, DocumentKind.POOL,
        DocumentKind.LIMIT,
    ]  # fmt: skip
    assert [one.name for one in found] == [one["name"] for one in ALL]


def test_a_project_says_what_its_updates_do() -> None:
    said = with_fields(PROJECT, update_cache_timeout="10m", pool="ops", dimensions={"os": "Linux"}, secrets={"T": "s"})
    found = document(said).definition
    task = {"dimensions": {"os": "Linux", "pool": "ops"}}
    assert found == Project(PROJECT["git"], "HEAD", True, 600_000, {"T": "s"}, None, task)


def test_an_inventory_has_hosts_groups_and_sources() -> None:
    found = document(INVENTORY).definition
    assert isinstance(found, Inventory)
    assert found.hosts == {"web1": {"port": 8080}, "web2": {}}
    assert found.groups["web"] == INVENTORY["groups"]["web"]
    assert found.sources == (
        InventorySource("file", "site", "hosts.yml", None, True),
        InventorySource("cloud", plugin={"plugin": "constructed"}, cache_ms=600_000),
    )


def test_a_playbook_becomes_a_play_and_a_payload_stays_as_it_is() -> None:
    with_playbook, with_payload = document(JOB).definition, document(PAYLOAD_JOB).definition
    assert isinstance(with_playbook, JobTemplate)
    assert isinstance(with_payload, JobTemplate)
    assert (with_playbook.play, with_playbook.payload) == ({"playbook": "site.yml", "forks": 10}, None)
    assert (with_payload.play, with_payload.payload) == (None, {"command": ["backup"]})
    assert with_payload.task == {"weight": 3, "dimensions": {"pool": "default"}}


def test_documents_refer_to_others_by_the_fields_that_name_them() -> None:
    assert references(document(JOB)) == (
        Reference("project", "site", ("project",)),
        Reference("inventory", "lab", ("inventory",)),
    )
    assert references(document(INVENTORY)) == (Reference("project", "site", ("sources", 0, "project")),)
    assert references(document(WORKFLOW)) == (
        Reference("template", "backup", ("nodes", "backup", "template")),
        Reference("template", "deploy", ("nodes", "deploy", "template")),
    )
    assert references(document(SCHEDULE)) == (Reference("template", "release", ("template",)),)
    assert references(document(PROJECT)) == ()


def test_the_stored_form_leaves_out_what_holds_anyway_and_is_read_again_unchanged() -> None:
    said = {**PROJECT, "branch": "HEAD", "update_cache_timeout": "0s", "secrets": {}, "pool": "default"}
    assert document(said).body == document(PROJECT).body
    assert "branch" not in json.loads(document(said).body)
    for one in (entry.document for entry in read(*ALL).entries):
        assert stored_document(one.body) == one
        again = document(json.loads(one.body))
        assert again == one


def test_the_order_of_hosts_is_a_part_of_the_document_and_that_of_its_fields_is_not() -> None:
    turned = {**INVENTORY, "hosts": {"web2": None, "web1": {"port": 8080}}}
    assert document(turned).body != document(INVENTORY).body
    assert document(dict(reversed(INVENTORY.items()))).body == document(INVENTORY).body


def test_a_number_and_a_word_that_python_calls_equal_are_different_documents() -> None:
    one, true = ({**JOB, "survey": [], "variables": {"debug": value}} for value in (1, True))
    assert document(one).body != document(true).body


def test_every_fault_of_every_document_is_listed_at_once() -> None:
    found = faults(
        {**PROJECT, "git": "--upload-pack=x", "update_cache_timeout": 10},
        {"kind": "projet", "name": "x"},
        {**JOB, "forks": 0, "project": None},
        {**WORKFLOW, "nodes": {"a": {"template": "x", "requires": ["b"]}, "b": {"requires": ["a"], "task": {}}}},
        7,
    )
    assert [path for path, _ in found] == [
        "documents[0].git",
        "documents[0].update_cache_timeout",
        "documents[1].kind",
        "documents[2].project",
        "documents[2].forks",
        "documents[3].nodes.b.task.payload",
        "documents[3].nodes.a.requires",
        "documents[4]",
    ]
    assert 'did you mean "project"?' in found[2][1]


MUTEXES = [{"key": f"k{number}"} for number in range(16)]
ENV = {f"E{number}": "" for number in range(128)}
ROWS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    (PROJECT, {"name": "a/b"}, ".name", "holds a /"),
    (PROJECT, {"name": "a\u202eb"}, ".name", "hidden character U+202E"),
    (PROJECT, {"name": "x" * 101}, ".name", "at most 100"),
    (PROJECT, {"name": None}, "", 'needs the field "name"'),
    (PROJECT, {"git": "ext::sh"}, ".git", "names a remote helper"),
    (PROJECT, {"git": "ext::sh -c id"}, ".git", "must hold no blanks"),
    (PROJECT, {"git": "-oProxyCommand=x"}, ".git", "must be a URL such as"),
    (PROJECT, {"git": "gopher://x/y"}, ".git", "must be a URL such as"),
    (PROJECT, {"git": "../site.git"}, ".git", "must be a URL such as"),
    (PROJECT, {"git": "https://ann:pw@host/x"}, ".git", "has credentials in it"),
    (PROJECT, {"branch": "-x"}, ".branch", "must be the name of a branch"),
    (PROJECT, {"branch": "a..b"}, ".branch", "must be the name of a branch"),
    (PROJECT, {"branch": "a b"}, ".branch", "must be the name of a branch"),
    (PROJECT, {"secrets": {"ssh_key": "s"}}, ".secrets.ssh_key", "is only used over ssh"),
    (PROJECT, {"git": "/srv/x.git", "secrets": {"token": "s"}}, ".secrets.token", "is only sent over https"),
    (PROJECT, {"dimensions": {"pool": "x"}}, ".dimensions.pool", "give it in its field pool"),
    (PROJECT, {"dimensions": {"os": 3}}, ".dimensions.os", "must be a string"),
    (PROJECT, {"secrets": {"TASKYARD_X": "s"}}, ".secrets.TASKYARD_X", "is for the bot to set"),
    (PROJECT, {"timeout": "9d"}, ".timeout", "a duration from 1s to 7d"),
    (PROJECT, {"playbook": "x"}, ".playbook", "unknown field"),
    (INVENTORY, {"hosts": ["a", "a"]}, ".hosts[1]", "repeats the host"),
    (INVENTORY, {"hosts": {"all": None}}, ".hosts.all", "is a group of Ansible"),
    (INVENTORY, {"hosts": {"a": 3}}, ".hosts.a", "must be an object"),
    (INVENTORY, {"groups": {"all": {}}}, ".groups.all", "Ansible makes itself"),
    (INVENTORY, {"groups": {"g": {"host": []}}}, ".groups.g.host", 'did you mean "hosts"?'),
    (INVENTORY, {"groups": {"g": {"children": {"h": {"hosts": {}}}}}}, ".groups.g.children.h", "describe it in groups"),
    (INVENTORY, {"sources": [{"name": "s"}]}, ".sources[0]", "needs either"),
    (INVENTORY, {"sources": [{"name": "s", "project": "p"}]}, ".sources[0]", 'needs both "project" and "path"'),
    (INVENTORY, {"sources": [{"name": "s", "project": "p", "plugin": {"plugin": "x"}}]}, ".sources[0]", "needs either"),
    (INVENTORY, {"sources": [{"name": "s", "plugin": {}}]}, ".sources[0].plugin", 'needs the field "plugin"'),
    (INVENTORY, {"sources": [{"name": "s", "plugin": {"plugin": "x"}}] * 2}, ".sources[1].name", "repeats the source"),
    (INVENTORY, {"sources": [{"name": "s", "project": "p", "path": "../h"}]}, ".sources[0].path", "without .."),
    (INVENTORY, {"sources": [{"name": "s/t", "plugin": {"plugin": "x"}}]}, ".sources[0].name", "holds a /"),
    (JOB, {"project": None}, "", 'needs the field "project"'),
    (JOB, {"payload": {"noop": True}}, ".playbook", "keep either playbook or payload"),
    (JOB, {"playbook": None, "forks": None}, "", "says nothing to run"),
    (JOB, {"weight": -1}, ".weight", "an integer from 0"),
    (JOB, {"mutexes": [{"key": ""}]}, ".mutexes[0].key", "is empty"),
    (JOB, {"mutexes": MUTEXES[:14]}, ".mutexes", "each launch adds 3 of its own; keep at most 13"),
    (PAYLOAD_JOB, {"mutexes": MUTEXES}, ".mutexes", "each launch adds 1 of its own; keep at most 15"),
    (SYSTEM, {"mutexes": MUTEXES}, ".mutexes", "each launch adds 1 of its own; keep at most 15"),
    (PAYLOAD_JOB, {"payload": {"command": ["x"], "env": ENV}}, ".payload.env", "keep at most 127"),
    (JOB, {"reruns": 1000}, ".reruns", "an integer from 0 to 999"),
    (JOB, {"variables": {"a b": 1}}, '.variables["a b"]', "a name of letters"),
    (JOB, {"variables": {"color": "red"}}, ".variables.color", 'must be one of "blue", "green"'),
    (JOB, {"survey": [{"name": "x", "type": "txt"}]}, ".survey[0].type", 'did you mean "text"?'),
    (JOB, {"survey": [{"name": "x", "type": "choice"}]}, ".survey[0]", 'needs the field "choices"'),
    (JOB, {"survey": [{"name": "x", "type": "text", "choices": ["a"]}]}, ".survey[0].choices", "belongs to a choice"),
    (JOB, {"survey": [{"name": "x", "type": "text"}] * 2}, ".survey[1].name", "repeats the variable"),
    (JOB, {"survey": [{"name": "x", "type": "integer", "default": "1"}]}, ".survey[0].default", "must be an integer"),
    (JOB, {"survey": [{"name": "x", "type": "integer", "min": 2, "max": 1}]}, ".survey[0].max", "must be at least min"),
    (JOB, {"survey": [{"name": "x", "type": "boolean", "min": 2}]}, ".survey[0].min", "means nothing to a boolean"),
    (PAYLOAD_JOB, {"timeout": "1h"}, ".timeout", "belongs inside payload"),
    (PAYLOAD_JOB, {"payload": {"command": "ls"}}, ".payload.command", "must be a list of arguments"),
    (PAYLOAD_JOB, {"payload": {}}, ".payload", "says nothing to run"),
    (PAYLOAD_JOB, {"payload": {"noop": True, "inputs": [{"from": "x"}]}}, ".payload.inputs[0].from", "no prerequisite"),
    (PAYLOAD_JOB, {"payload": {"command": [{"$matrix": "os"}]}}, ".payload.command[0]", ""),
    (WORKFLOW, {"nodes": {}}, ".nodes", "must hold a node"),
    (WORKFLOW, {"nodes": {"a": {}}}, ".nodes.a", 'needs either "template" or "task"'),
    (WORKFLOW, {"nodes": {"a": {"template": "x", "task": {}}}}, ".nodes.a", 'needs either "template" or "task"'),
    (WORKFLOW, {"nodes": {"a": {"template": "x", "requires": ["b"]}}}, ".nodes.a.requires[0]", 'unknown label "b"'),
    (WORKFLOW, {"nodes": {"a": {"templte": "x"}}}, ".nodes.a.templte", 'did you mean "template"?'),
    (
        WORKFLOW,
        {"nodes": {"a": {"task": {"payload": {"noop": True}}, "variables": {}}}},
        ".nodes.a.variables",
        "belongs to a template",
    ),
    (SYSTEM, {"payload": None}, "", 'needs the field "payload"'),
    (SCHEDULE, {"rrule": "FREQ=DAILY"}, "", "needs either"),
    (SCHEDULE, {"cron": None}, "", "needs either"),
    (SCHEDULE, {"start": "tomorrow"}, ".start", "RFC 3339"),
    (SCHEDULE, {"cron": "0 25 * * *"}, ".cron", "hour"),
    (SCHEDULE, {"cron": None, "rrule": "FREQ=DAILY"}, ".rrule", 'needs "start"'),
    (SCHEDULE, {"cron": None, "rrule": "FREQ=SECONDLY", "start": "2026-01-01T00:00:00Z"}, ".rrule", "FREQ must be"),
    (SCHEDULE, {"timezone": "Europe/Nowhere"}, ".timezone", "is no time zone"),
    (SCHEDULE, {"missed": "some"}, ".missed", "must be one of skip, one, all"),
    (POOL, {"capacity": -1}, ".capacity", "an integer from 0"),
    (POOL, {"from_bots": True}, ".capacity", "keep one of them"),
    (POOL, {"unit": "forks"}, ".unit", "add from_bots: true"),
    (POOL, {"pool": "x"}, ".pool", "unknown field"),
    (LIMIT, {"total": None}, "", 'needs the field "total"'),
    (LIMIT, {"total": "\x00"}, ".total", "NUL"),
]


@each_row(("base", "fields", "path", "message"), ROWS)
def test_a_fault_has_its_path_and_says_what_to_write(
    base: dict[str, Any], fields: dict[str, Any], path: str, message: str
) -> None:
    found = faults(with_fields(base, **fields))
    assert any(at == f"documents[0]{path}" and message in text for at, text in found), found


def test_two_documents_of_one_name_are_refused_unless_their_kinds_differ() -> None:
    again = {**PROJECT, "git": "/srv/other.git"}
    assert faults(PROJECT, again) == [
        ("documents[1].name", 'project "site" is described in documents[0] too; keep one')
    ]
    assert not faults(PROJECT, {**INVENTORY, "name": "site"})


@pytest.mark.parametrize("documents", [None, {}, [], "x", 5, [PROJECT] * (DOCUMENTS_MAX + 1)])
def test_a_request_is_a_list_of_documents(documents: object) -> None:
    reading = read_documents(documents)
    assert not reading.entries
    assert [one.path for one in reading.faults] == ["documents"]


def test_what_one_request_may_cost_is_bounded() -> None:
    many = {"matrix": {axis: list(range(16)) for axis in "ab"}, "task": {"payload": {"noop": True}}}
    nodes = {f"n{place}": many for place in range(TASKS_MAX // 256 + 1)}
    assert [(path, "tasks; split it" in message) for path, message in faults({**WORKFLOW, "nodes": nodes})] == [
        ("documents[0].nodes", True)
    ]
    wide = {f"n{place}": {"template": f"t{place}"} for place in range(REFERENCES_MAX // 2 + 1)}
    assert faults({**WORKFLOW, "nodes": wide}, {**WORKFLOW, "name": "other", "nodes": wide}) == [
        ("documents", "refer to more than 10000 others; apply fewer at once")
    ]
    large = {**PAYLOAD_JOB, "payload": {"command": ["x" * 131_071] * 9}}
    assert [path for path, _ in faults(large)] == ["documents[0]"]


def test_tasks_get_the_pool_of_their_document_unless_the_server_runs_them() -> None:
    command = {"payload": {"command": ["x"]}}
    assert task_in_pool(command, "ops")["dimensions"] == {"pool": "ops"}
    assert task_in_pool({**command, "dimensions": {"pool": "lab"}}, "ops")["dimensions"] == {"pool": "lab"}
    assert task_in_pool({"payload": {"approval": "?"}}, "ops") == {"payload": {"approval": "?"}}
    sliced = task_in_pool({**command, "slices": [{"dimensions": {"os": "x"}}, {}]}, "ops")
    assert sliced["slices"] == [{"dimensions": {"os": "x", "pool": "ops"}}, {"dimensions": {"pool": "ops"}}]


def test_what_a_document_needs_rights_for_is_known() -> None:
    secret = {**PAYLOAD_JOB, "pool": "ops", "priority": 5, "payload": {"command": ["x"], "secrets": {"T": "s"}}}
    inline = {"task": {"dimensions": {"pool": "lab"}, "payload": {"command": ["x"]}}}
    workflow = {**WORKFLOW, "pool": "ops", "nodes": {"a": inline}}
    first, second = read(secret, workflow).entries
    assert first.pools == first.secret_pools == {"ops"}
    assert first.urgent == {5: {"ops"}}
    assert second.pools == {"lab"}
    of_inventory = {**INVENTORY, "sources": [{"name": "s", "plugin": {"plugin": "x"}, "secrets": {"T": "s"}}]}
    assert read(of_inventory).entries[0].secret_pools == {"default"}


def test_the_digest_of_what_an_update_fetches_ignores_how_long_it_is_good() -> None:
    def digest(one: Document) -> str:
        assert isinstance(one.definition, Project)
        return content_digest(one.definition)

    base = digest(document(PROJECT))
    assert digest(document({**PROJECT, "update_cache_timeout": "1h", "description": "x"})) == base
    assert digest(document({**PROJECT, "branch": "next"})) != base


def test_settings_with_the_same_meaning_are_the_same_document() -> None:
    week = document({**POOL, "reuse_window": "168h"})
    assert week.body == document({**POOL, "reuse_window": "7d"}).body == document(POOL).body
    assert week.definition == PoolSettings(5)


def test_a_matrix_may_vary_the_variables_of_a_launch() -> None:
    node = {"matrix": {"color": ["blue", "green"]}, "template": "deploy", "variables": {"color": {"$matrix": "color"}}}
    found = document({**WORKFLOW, "nodes": {"deploy": node}}).definition
    assert isinstance(found, WorkflowTemplate)
    assert faults({**WORKFLOW, "nodes": {"a": {**node, "variables": {"color": {"$matrix": "os"}}}}})
