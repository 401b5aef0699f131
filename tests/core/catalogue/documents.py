"""Documents of the catalogue for tests: one of each kind, and whether a document is read."""

from typing import Any

from taskyard.core.catalogue.model import Document
from taskyard.core.catalogue.parse import Reading, read_documents

PROJECT: dict[str, Any] = {
    "kind": "project",
    "name": "site",
    "git": "https://git.example/site.git",
    "update_on_launch": True,
}
INVENTORY: dict[str, Any] = {
    "kind": "inventory",
    "name": "lab",
    "hosts": {"web1": {"port": 8080}, "web2": None},
    "groups": {"web": {"hosts": ["web1", "web2"], "vars": {"x": 1}, "children": ["front"]}},
    "sources": [
        {"name": "file", "project": "site", "path": "hosts.yml", "update_on_launch": True},
        {"name": "cloud", "plugin": {"plugin": "constructed"}, "update_cache_timeout": "10m"},
    ],
}
JOB: dict[str, Any] = {
    "kind": "job_template",
    "name": "deploy",
    "project": "site",
    "inventory": "lab",
    "playbook": "site.yml",
    "forks": 10,
    "variables": {"version": "1.2"},
    "survey": [{"name": "color", "type": "choice", "choices": ["blue", "green"], "required": True}],
}
PAYLOAD_JOB: dict[str, Any] = {
    "kind": "job_template",
    "name": "backup",
    "payload": {"command": ["backup"]},
    "weight": 3,
}
WORKFLOW: dict[str, Any] = {
    "kind": "workflow_template",
    "name": "release",
    "nodes": {
        "backup": {"template": "backup"},
        "ask": {"requires": ["backup"], "task": {"payload": {"approval": "deploy?"}}},
        "deploy": {"requires": ["ask"], "template": "deploy", "variables": {"color": "blue"}},
    },
}
SYSTEM: dict[str, Any] = {"kind": "system_job_template", "name": "tidy", "payload": {"command": ["tidy"]}}
SCHEDULE: dict[str, Any] = {"kind": "schedule", "name": "nightly", "template": "release", "cron": "0 3 * * *"}
POOL: dict[str, Any] = {"kind": "pool", "name": "lab", "capacity": 5}
LIMIT: dict[str, Any] = {"kind": "limit", "name": "licences", "total": 2}
ALL = [PROJECT, INVENTORY, JOB, PAYLOAD_JOB, WORKFLOW, SYSTEM, SCHEDULE, POOL, LIMIT]


def read(*documents: object) -> Reading:
    """Read documents that have no fault."""
    reading = read_documents(list(documents))
    assert not reading.faults, reading.faults
    return reading


def document(one: object) -> Document:
    """Read one document that has no fault."""
    return read(one).entries[0].document


def faults(*documents: object) -> list[tuple[str, str]]:
    """Read documents and return the path in the request and the message of each fault."""
    return [(one.path, one.message) for one in read_documents(list(documents)).faults]


def with_fields(base: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a document with other fields; None removes one."""
    return {name: value for name, value in {**base, **fields}.items() if value is not None}
