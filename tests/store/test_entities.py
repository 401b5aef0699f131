"""`docs/entities.md` agrees with the tables and lists all entities."""

import re

import pytest

from taskyard.core import ids
from taskyard.store.schema import metadata
from tests.each_row import each_row
from tests.project.tree import DOCS

PAGE = (DOCS / "entities.md").read_text(encoding="utf-8")

#: Every entity that the texts on the task-graph scheduler and on Swarming name.
ENTITIES = [
    "task-graph", "task", "TaskRequest", "TaskProperties", "TaskSlice", "FilesRef", "SecretBytes", "TaskToRun",
    "TaskResultSummary", "TaskRunResult", "TaskOutput", "TaskOutputChunk", "PerformanceStats", "TaskDimensionsRoot",
    "TaskDimensions", "TaskDimensionsSet", "BotRoot", "BotInfo", "BotSettings", "BotEvent", "BotDimensions",
    "BotTaskDimensions", "DimensionAggregation",
]  # fmt: skip
#: Those that the texts draw with a key of their own.
KEYED = [one for one in ENTITIES[2:] if one not in {"TaskProperties", "TaskSlice", "FilesRef", "TaskDimensionsSet"}]
#: Every property of the two entities of the task-graph scheduler, and of its document about a graph and a task.
PROPERTIES = {
    "task-graph": ["partitionKey", "rowKey", "requires", "nameMapping", "state", "routing"],
    "task": [
        "partitionKey", "rowKey", "taskLabel", "routing", "rerunsAllowed", "rerunsLeft", "deadline", "requires",
        "dependents", "resolution", "resultUrl", "logsUrl", "failed",
    ],
}  # fmt: skip
#: Tables without a counterpart in these two systems: AWX's admission, and housekeeping.
OTHERS = {
    "secret", "task_secret", "hash_key", "token", "graph_pool", "signing_key", "progress",
    "task_mutex", "task_limit", "pool", "named_limit", "mutex_policy", "hold", "admission_lock", "admission_dirty",
    "continuation", "server", "service", "event", "audit", "idempotency_key", "graph_rerun", "task_reuse", "reuse_key",
    "reuse_follower", "reuse_policy", "catalogue", "catalogue_version", "catalogue_reference", "catalogue_lock",
    "launch", "schedule_plan", "resource_update", "link",
    "retention", "purged_graph", "event_stream", "streamed_event", "event_target",
    "session", "pool_minute", "webhook", "dead_delivery", "webhook_sender",
}  # fmt: skip


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    below = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


WHERE = {row[0]: row for row in table("The entities")}
KEYS = {row[0]: row for row in table("Their keys")}


def coded(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_entity_has_its_line_and_no_other_has() -> None:
    assert list(WHERE) == ENTITIES
    assert list(KEYS) == KEYED
    shown = [(entity, name) for entity, name, _ in table("The task-graph scheduler, property by property")]
    assert shown == [(entity, name) for entity, names in PROPERTIES.items() for name in names]


@each_row("entity", ENTITIES)
def test_an_entity_is_a_table_or_part_of_one_or_missing(entity: str) -> None:
    _, where, key, said = WHERE[entity]
    assert said
    match where.split():
        case ["not", "stored"] | ["later"]:
            assert key == ""
        case ["inside", name]:
            assert name.strip("`") in metadata.tables
            assert key == ""
        case [name]:
            assert [column.name for column in metadata.tables[name.strip("`")].primary_key] == coded(key)
        case _:
            pytest.fail(f"{where} is no place")


def test_every_column_that_is_named_exists() -> None:
    columns = {f"{one.name}.{column.name}" for one in metadata.tables.values() for column in one.columns}
    named = {one for one in coded(PAGE) if re.fullmatch(r"\w+\.\w+", one)} - {"table.column", "matching.dimension_hash"}
    assert named - columns == set()
    assert len(named) > len(ENTITIES)


def test_every_table_is_named_or_exempt() -> None:
    named = {one.split(".")[0] for one in coded(PAGE)} & set(metadata.tables)
    assert named | OTHERS == set(metadata.tables)
    assert named & OTHERS == set()


@each_row("entity", KEYED)
def test_a_key_is_a_column_or_comes_later(entity: str) -> None:
    assert [one for one in coded(KEYS[entity][2]) if "." in one] or KEYS[entity][2] == "later"


def test_every_constant_of_a_key_is_documented_with_its_value() -> None:
    shown = [coded(row[3]) for row in KEYS.values() if row[3]]
    assert shown == [[name, repr(getattr(ids, name))] for name, _ in shown]
    assert {name for name in vars(ids) if name.endswith("_KEY")} <= {name for name, _ in shown}
