"""The catalogue on both databases: versions, echoes, dry runs, deletions, settings, and two servers at once."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text

from taskyard.core.catalogue.plan import Action, Rights
from taskyard.engine.catalogue import Catalogue
from taskyard.engine.engine import Engine
from taskyard.lifecycle.catalogue import Applied, settings_documents
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.store.repo.admission import PoolRow
from taskyard.store.repo.catalogue import FIRST, DocumentRow
from tests.core.catalogue.documents import ALL, INVENTORY, JOB, LIMIT, POOL, PROJECT, SCHEDULE, WORKFLOW

KINDS = {"project", "inventory", "job_template", "workflow_template", "system_job_template", "schedule"}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    with Engine.open(database_url, name="one") as engine:
        yield engine


def apply(catalogue: Catalogue, *documents: Any, **said: Any) -> list[tuple[str, str, int]]:
    answer = catalogue.apply(list(documents), actor="ann", **said)
    assert isinstance(answer, Applied), answer
    return [(one.document.name, str(one.action), one.version) for one in answer.changes]


def refused(answer: object) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer


def rows(engine: Engine, pools: set[str] | None = None) -> dict[str, DocumentRow]:
    with engine.store.read() as repo:
        return {row.name: row for row in repo.catalogue.page(KINDS, pools, FIRST, 100)}


def audits(engine: Engine) -> list[tuple[str, str]]:
    with engine.store.read() as repo:
        return [(row.action, row.note) for row in repo.events.audits_of(NO_SUBJECT, 1000)]


def test_documents_are_stored_with_versions_and_an_audit_of_each(engine: Engine) -> None:
    assert {action for _, action, _ in apply(engine.catalogue, *ALL)} == {Action.CREATE}
    changed = {**PROJECT, "branch": "next"}
    assert apply(engine.catalogue, changed) == [("site", Action.CHANGE, 2)]
    with engine.store.read() as repo:
        versions = repo.catalogue.versions("project", "site", 100, 10)
        one = repo.catalogue.read([("project", "site")])["project", "site"]
    assert [(found.version, found.changed_by) for found in versions] == [(2, "ann"), (1, "ann")]
    assert '"branch":"next"' in one.body == versions[0].body
    assert ("apply_document", "project site: version 1") in audits(engine)
    assert ("apply_document", "project site: version 2") in audits(engine)


def test_an_unchanged_document_keeps_its_version_and_leaves_no_audit(engine: Engine) -> None:
    apply(engine.catalogue, *ALL)
    before = audits(engine), rows(engine)
    assert {action for _, action, _ in apply(engine.catalogue, *ALL)} == {Action.UNCHANGED}
    assert (audits(engine), rows(engine)) == before


def test_one_faulty_document_keeps_all_of_them_out_and_every_fault_is_listed(engine: Engine) -> None:
    apply(engine.catalogue, PROJECT)
    faulty = refused(engine.catalogue.apply([{**PROJECT, "branch": "x"}, {**JOB, "forks": 0}, {**SCHEDULE}]))
    assert faulty.code is Code.INVALID
    assert [one.path for one in faulty.faults] == ["documents[1].forks", "documents[2].template"]
    assert {name: row.version for name, row in rows(engine).items()} == {"site": 1}


def test_a_dry_run_stores_nothing(engine: Engine) -> None:
    before = audits(engine)
    assert apply(engine.catalogue, PROJECT, POOL, LIMIT, dry_run=True) == [
        ("site", Action.CREATE, 1),
        ("lab", Action.CREATE, 1),
        ("licences", Action.CREATE, 1),
    ]
    assert rows(engine) == {}
    assert audits(engine) == before
    with engine.store.read() as repo:
        assert settings_documents(repo) == []


def test_pools_and_limits_are_the_settings_of_admission(engine: Engine) -> None:
    assert apply(engine.catalogue, POOL, LIMIT) == [("lab", Action.CREATE, 1), ("licences", Action.CREATE, 1)]
    with engine.store.read() as repo:
        assert repo.admission.pools() == [PoolRow("lab", 5, False)]
        assert repo.admission.named_limits() == {"licences": 2}
    engine.set_pool("lab", 7)
    [(_, action, _)] = apply(engine.catalogue, POOL)
    assert action == Action.CHANGE
    assert [action for _, action, _ in apply(engine.catalogue, POOL, LIMIT)] == [Action.UNCHANGED] * 2


def test_what_is_referred_to_is_not_deleted_and_the_refusal_names_what_refers(engine: Engine) -> None:
    apply(engine.catalogue, *ALL)
    refusal = refused(engine.catalogue.delete("project", "site"))
    assert refusal.code is Code.CONFLICT
    assert refusal.text == "cannot delete project site: inventory lab, job_template deploy would lack it"
    rights = Rights(read=frozenset(), change=frozenset())
    assert refused(engine.catalogue.delete("project", "site", rights=rights)).code is Code.NOT_FOUND


def test_a_deleted_document_leaves_its_versions_and_begins_after_them(engine: Engine) -> None:
    apply(engine.catalogue, *ALL)
    assert engine.catalogue.delete("schedule", "nightly", actor="bob") is None
    assert refused(engine.catalogue.delete("schedule", "nightly")).code is Code.NOT_FOUND
    with engine.store.read() as repo:
        [last, first] = repo.catalogue.versions("schedule", "nightly", 100, 10)
    assert (last.version, last.body, last.changed_by, first.version) == (2, None, "bob", 1)
    assert engine.catalogue.delete("workflow_template", "release") is None
    assert apply(engine.catalogue, WORKFLOW, SCHEDULE) == [
        ("release", Action.CREATE, 3),
        ("nightly", Action.CREATE, 3),
    ]
    assert ("delete_document", "schedule nightly: version 2") in audits(engine)


def test_a_change_of_references_frees_what_was_referred_to(engine: Engine) -> None:
    apply(engine.catalogue, *ALL)
    apply(engine.catalogue, {**JOB, "inventory": None} | {"inventory": "lab"}, {**INVENTORY, "sources": []})
    apply(engine.catalogue, {name: value for name, value in JOB.items() if name != "inventory"})
    assert engine.catalogue.delete("inventory", "lab") is None


def test_a_repeat_with_the_same_key_changes_nothing_more(engine: Engine) -> None:
    assert apply(engine.catalogue, PROJECT, key="k1") == [("site", Action.CREATE, 1)]
    apply(engine.catalogue, {**PROJECT, "branch": "next"})
    assert apply(engine.catalogue, PROJECT, key="k1") == [("site", Action.UNCHANGED, 2)]
    assert '"branch":"next"' in rows(engine)["site"].body
    refusal = refused(engine.catalogue.apply([INVENTORY | {"sources": []}], key="k1"))
    assert refusal.code is Code.CONFLICT
    assert engine.catalogue.delete("project", "site", key="k2") is None
    apply(engine.catalogue, PROJECT)
    assert engine.catalogue.delete("project", "site", key="k2") is None
    assert set(rows(engine)) == {"site"}


def test_pages_have_only_documents_of_the_wanted_kinds_and_pools(engine: Engine) -> None:
    apply(engine.catalogue, *ALL, {**PROJECT, "name": "other", "pool": "ops"})
    assert set(rows(engine, {"ops"})) == {"other"}
    with engine.store.read() as repo:
        first = repo.catalogue.page({"project", "schedule"}, None, FIRST, 2)
        rest = repo.catalogue.page({"project", "schedule"}, None, (first[-1].kind, first[-1].name), 2)
    assert [(one.kind, one.name) for one in (*first, *rest)] == [
        ("project", "other"),
        ("project", "site"),
        ("schedule", "nightly"),
    ]


@pytest.mark.parametrize(
    ("damage", "columns"),
    [
        ("UPDATE catalogue SET version = 7 WHERE name = 'site'", {"version"}),
        ("UPDATE catalogue SET body = '{}' WHERE name = 'site'", {"body"}),
        ("DELETE FROM catalogue_reference WHERE name = 'deploy' AND to_kind = 'project'", {"references"}),
        ("DELETE FROM catalogue WHERE kind = 'job_template' AND name = 'backup'", {"reference to job_template backup"}),
    ],
)
def test_the_doctor_finds_what_does_not_hold(engine: Engine, database_url: str, damage: str, columns: set[str]) -> None:
    apply(engine.catalogue, *ALL)
    assert engine.doctor() == []
    address = database_url.replace("postgresql:", "postgresql+psycopg:")
    with create_engine(address, poolclass=NullPool).begin() as connection:
        connection.execute(text(damage))
    assert {(one.kind, one.column) for one in engine.doctor()} == {("document", column) for column in columns}


def test_two_servers_that_apply_at_once_make_each_version_once(postgres_url: str) -> None:
    with Engine.open(postgres_url, name="one") as one, Engine.open(postgres_url, name="two") as two:
        apply(one.catalogue, PROJECT)
        answers: list[list[tuple[str, str, int]]] = []

        def change(engine: Engine, branch: str) -> None:
            answers.extend(
                apply(engine.catalogue, {**PROJECT, "branch": f"{branch}{place}"}, INVENTORY) for place in range(10)
            )

        threads = [threading.Thread(target=change, args=pair) for pair in ((one, "a"), (two, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(answers) == 20
        versions = sorted(found[0][2] for found in answers)
        assert versions == list(range(2, 22))
        assert sorted(found[1][1] for found in answers) == [Action.CREATE] + [Action.UNCHANGED] * 19
        with one.store.read() as repo:
            stored = repo.catalogue.versions("project", "site", 100, 100)
        assert [found.version for found in stored] == list(range(21, 0, -1))


def test_a_deletion_and_a_new_reference_at_once_never_leave_a_reference_to_nothing(postgres_url: str) -> None:
    with Engine.open(postgres_url, name="one") as one, Engine.open(postgres_url, name="two") as two:
        for _ in range(10):
            apply(one.catalogue, PROJECT, {**INVENTORY, "sources": []})
            both = threading.Barrier(2)

            def delete(both: threading.Barrier = both) -> None:
                both.wait(60)
                one.catalogue.delete("inventory", "lab")

            deleting = threading.Thread(target=delete)
            deleting.start()
            both.wait(60)
            answer = two.catalogue.apply([JOB])
            deleting.join(60)
            assert ("lab" in rows(one)) is isinstance(answer, Applied)
            two.catalogue.delete("job_template", "deploy")
