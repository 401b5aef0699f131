"""What applying documents changes, and whether what they refer to is there, and whether the caller may use it."""

from typing import Any

from taskyard.core.catalogue.plan import Action, Facts, Plan, Rights, Stored, names_of, plan
from tests.core.catalogue.documents import ALL, INVENTORY, JOB, PAYLOAD_JOB, PROJECT, SCHEDULE, WORKFLOW, document, read

EVERYTHING = Rights()
OPS = frozenset({"ops"})
NONE: frozenset[str] = frozenset()


def stored(*documents: Any, version: int = 3) -> dict[tuple[str, str], Stored]:
    found = [document(one) for one in documents]
    return {(str(one.kind), one.name): Stored(one.pool, version, one.body) for one in found}


def planned(*documents: Any, facts: Facts = Facts({}), rights: Rights = EVERYTHING) -> Plan:  # noqa: B008
    return plan(read(*documents).entries, facts, rights)


def changes(found: Plan) -> list[tuple[str, str, int]]:
    assert not found.faults, found.faults
    return [(one.document.name, str(one.action), one.version) for one in found.changes]


def faults(found: Plan) -> list[tuple[str, str]]:
    assert not found.changes
    return [(one.path, one.message) for one in found.faults]


def workflow(name: str, *templates: str, **fields: Any) -> dict[str, Any]:
    nodes: dict[str, Any] = {f"n{place}": {"template": one} for place, one in enumerate(templates)}
    nodes |= {"own": {"task": {"payload": {"noop": True}}}}
    return {"kind": "workflow_template", "name": name, "nodes": nodes, **fields}


def test_new_changed_and_unchanged_documents_are_distinguished() -> None:
    facts = Facts(stored(PROJECT, INVENTORY), last_versions={("job_template", "backup"): 7})
    changed = {**INVENTORY, "vars": {"x": 2}}
    assert changes(planned(PROJECT, changed, PAYLOAD_JOB, facts=facts)) == [
        ("site", Action.UNCHANGED, 3),
        ("lab", Action.CHANGE, 4),
        ("backup", Action.CREATE, 8),
    ]


def test_a_document_that_moves_to_another_pool_is_changed() -> None:
    assert changes(planned({**PROJECT, "pool": "ops"}, facts=Facts(stored(PROJECT)))) == [("site", Action.CHANGE, 4)]


def test_references_are_found_in_the_same_request_in_any_order_or_in_the_store() -> None:
    assert not planned(*reversed(ALL)).faults
    found = planned(JOB, facts=Facts(stored(PROJECT, INVENTORY)))
    assert found.changes[0].refers_to == (("project", "site"), ("inventory", "lab"))
    launches = planned(WORKFLOW, facts=Facts(stored(PAYLOAD_JOB, JOB)))
    assert launches.changes[0].refers_to == (("job_template", "backup"), ("job_template", "deploy"))


def test_a_reference_to_what_does_not_exist_is_a_fault_that_suggests_a_name() -> None:
    assert faults(planned(PROJECT, {**JOB, "project": "sites"}, SCHEDULE)) == [
        ("documents[1].project", 'there is no project "sites"; did you mean "site"?'),
        ("documents[1].inventory", 'there is no inventory "lab"; apply it before this, or with it'),
        ("documents[2].template", 'there is no template "release"; apply it before this, or with it'),
    ]


def test_what_a_caller_may_not_read_does_not_exist_for_it() -> None:
    facts = Facts(stored({**PROJECT, "pool": "secret"}, INVENTORY))
    rights = Rights(change=OPS, read=OPS | {"default"}, submit=OPS)
    found = faults(planned({**JOB, "pool": "ops", "project": "sit"}, facts=facts, rights=rights))
    assert found == [("documents[0].project", 'there is no project "sit"; apply it before this, or with it')]
    assert [path for path, _ in faults(planned({**JOB, "pool": "ops"}, facts=facts, rights=rights))] == [
        "documents[0].project"
    ]


def test_a_document_of_another_pool_is_never_changed() -> None:
    facts = Facts(stored({**PROJECT, "pool": "lab"}))
    rights = Rights(change=OPS, read=NONE, submit=OPS)
    assert faults(planned({**PROJECT, "pool": "ops"}, facts=facts, rights=rights)) == [
        ("documents[0].name", "is taken in a pool whose documents you may not change; rename it")
    ]


def test_what_launches_a_template_needs_the_right_to_launch_it() -> None:
    facts = Facts(stored({**PAYLOAD_JOB, "pool": "lab"}))
    rights = Rights(change=OPS, read=frozenset({"lab"}), submit=OPS)
    mine = workflow("mine", "backup", pool="ops")
    assert faults(planned(mine, facts=facts, rights=rights)) == [
        ("documents[0].nodes.n0.template", "is launched with this, for which you need pool:lab:submit")
    ]


def test_templates_of_all_kinds_share_one_set_of_names() -> None:
    twin = workflow("backup")
    assert [path for path, _ in faults(planned(PAYLOAD_JOB, twin))] == ["documents[0].name", "documents[1].name"]
    assert faults(planned(twin, facts=Facts(stored(PAYLOAD_JOB)))) == [
        ("documents[0].name", "is that of a job_template too; rename one of them")
    ]


def test_a_workflow_that_launches_itself_is_refused() -> None:
    assert faults(planned(workflow("a", "a"))) == [
        ("documents[0].nodes.n0.template", "makes a workflow that launches itself: a -> a; remove one launch")
    ]


def test_a_workflow_that_launches_itself_through_others_is_refused_wherever_they_are() -> None:
    among = planned(workflow("a", "b"), workflow("b", "c"), workflow("c", "a"))
    assert [message for _, message in faults(among)] == [
        "makes a workflow that launches itself: a -> b -> c -> a; remove one launch"
    ]
    nested = [("b", "ops", "c"), ("c", "secret", "a")]
    facts = Facts(stored(workflow("b", "c"), workflow("a")), nested=nested)
    every_pool_but_secret = Rights(read=frozenset({"ops", "default"}), change=frozenset({"default"}))
    for rights, third in ((EVERYTHING, "c"), (every_pool_but_secret, '"..."')):
        assert faults(planned(workflow("a", "b"), facts=facts, rights=rights)) == [
            (
                "documents[0].nodes.n0.template",
                f"makes a workflow that launches itself: a -> b -> {third} -> a; remove one launch",
            )
        ]


def test_a_change_may_break_a_cycle_of_the_stored_references() -> None:
    facts = Facts(stored(workflow("a", "b"), workflow("b")), nested=[("a", "ops", "b")])
    assert not planned(workflow("b", "a"), workflow("a"), facts=facts).faults


def test_variables_of_schedules_and_nodes_answer_the_surveys_of_their_templates() -> None:
    facts = Facts(stored(PROJECT, INVENTORY, JOB, PAYLOAD_JOB))
    nodes = {"d": {"template": "deploy", "variables": {"color": "red", "anything": 1}}}
    assert [path for path, _ in faults(planned({**WORKFLOW, "nodes": nodes}, facts=facts))] == [
        "documents[0].nodes.d.variables.color"
    ]
    schedule = {**SCHEDULE, "template": "deploy", "variables": {"verson": "2"}}
    assert [path for path, _ in faults(planned(schedule, facts=facts))] == [
        "documents[0].variables.verson",
        "documents[0].variables",
    ]
    assert not planned({**schedule, "variables": {"version": "2", "color": "blue"}}, facts=facts).faults


def test_the_facts_are_about_what_is_applied_what_it_refers_to_and_all_templates_of_its_name() -> None:
    assert names_of(read(SCHEDULE, PROJECT).entries) == {
        ("schedule", "nightly"),
        ("job_template", "release"),
        ("workflow_template", "release"),
        ("system_job_template", "release"),
        ("project", "site"),
    }
