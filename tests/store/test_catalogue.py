"""The tables of the catalogue on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.repo.catalogue import FIRST, DocumentRow, VersionRow
from tests.store.rows import LATER, NOW


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def row(kind: str, name: str, version: int = 1, pool: str = "ops", body: str = "{}", at: int = NOW) -> DocumentRow:
    return DocumentRow(kind, name, pool, version, body, at, "ann")  # type: ignore[arg-type]


SITE, LAB, JOB = row("project", "site"), row("inventory", "lab"), row("job_template", "deploy", pool="lab")
NAMES = [("project", "site"), ("inventory", "lab"), ("inventory", "site")]


def add_documents(repo: Repo) -> None:
    job = ("job_template", "deploy")
    repo.catalogue.lock()
    repo.catalogue.save([SITE, LAB, JOB], [(job, ("project", "site")), (job, ("inventory", "lab"))], 3)


def test_documents_are_stored_replaced_and_deleted(store: Store) -> None:
    with store.write() as repo:
        assert repo.catalogue.lock() == repo.catalogue.changes() == 0
        add_documents(repo)
        assert repo.catalogue.lock() == repo.catalogue.changes() == 1
        changed = row("project", "site", 2, body='{"x":1}', at=LATER)
        repo.catalogue.save([changed], [], 3)
    with store.read() as repo:
        found = {("project", "site"): changed, ("inventory", "lab"): LAB}
        assert repo.catalogue.read(NAMES) == found
        assert repo.catalogue.read([]) == {}
    with store.write() as repo:
        assert repo.catalogue.lock_documents(NAMES) == found
        repo.catalogue.delete(row("project", "site", 3), 3)
        assert repo.catalogue.read(NAMES) == {("inventory", "lab"): LAB}
        assert repo.catalogue.last_versions(NAMES) == {("project", "site"): 3, ("inventory", "lab"): 1}
        assert repo.catalogue.last_versions([]) == {}


def test_versions_are_listed_newest_first_and_only_so_many_are_kept(store: Store) -> None:
    with store.write() as repo:
        for version in range(1, 6):
            repo.catalogue.save([row("project", "site", version, body=f"{version}")], [], 3)
        repo.catalogue.delete(row("project", "site", 6), 3)
    with store.read() as repo:
        assert repo.catalogue.versions("project", "site", 7, 2) == [
            VersionRow(6, "ops", None, NOW, "ann"),
            VersionRow(5, "ops", "5", NOW, "ann"),
        ]
        assert [one.version for one in repo.catalogue.versions("project", "site", 6, 10)] == [5, 4]


def test_pages_go_by_kind_and_name(store: Store) -> None:
    kinds = {"project", "inventory", "job_template"}
    with store.write() as repo:
        add_documents(repo)
    with store.read() as repo:
        assert repo.catalogue.page(kinds, None, FIRST, 2) == [LAB, JOB]
        assert repo.catalogue.page(kinds, None, ("job_template", "deploy"), 2) == [SITE]
        assert repo.catalogue.page(kinds, {"lab"}, FIRST, 2) == [JOB]
        assert repo.catalogue.page({"project"}, {"ops", "lab"}, FIRST, 2) == [SITE]


def test_references_are_found_from_both_ends_and_follow_their_document(store: Store) -> None:
    outer, inner = row("workflow_template", "outer"), row("workflow_template", "inner", pool="lab")
    with store.write() as repo:
        add_documents(repo)
        pair = (("workflow_template", "outer"), ("workflow_template", "inner"))
        repo.catalogue.save([outer, inner], [pair, (pair[1], ("job_template", "deploy"))], 3)
    with store.read() as repo:
        assert repo.catalogue.referrers("project", "site", 10) == [("job_template", "deploy", "lab")]
        assert repo.catalogue.referrers("project", "none", 10) == []
        assert repo.catalogue.references_of([("workflow_template", "outer"), ("project", "site")]) == {
            ("workflow_template", "outer"): {("workflow_template", "inner")}
        }
        assert repo.catalogue.exist({*NAMES, ("project", "lab")}) == {("project", "site"), ("inventory", "lab")}
        assert repo.catalogue.exist(set()) == set()
        assert repo.catalogue.references_among("workflow_template") == [("outer", "ops", "inner")]
    with store.write() as repo:
        repo.catalogue.save([row("job_template", "deploy", 2)], [(("job_template", "deploy"), ("inventory", "lab"))], 3)
        repo.catalogue.delete(row("workflow_template", "outer", 2), 3)
    with store.read() as repo:
        assert repo.catalogue.referrers("project", "site", 10) == []
        assert repo.catalogue.referrers("inventory", "lab", 10) == [("job_template", "deploy", "ops")]
        assert repo.catalogue.references_among("workflow_template") == []
