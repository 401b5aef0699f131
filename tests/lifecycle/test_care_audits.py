"""What people are told of a repair: each number that it mends has its audit row, in the transaction that mends it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest

from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.doctor import check
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.transaction import Transaction
from tests.lifecycle.grounds import Grounds
from tests.lifecycle.scene import Scene, found, set_scene

#: Something wrong in every place that has a transaction of its own.
EVERYWHERE = """
    DELETE FROM task_mutex; UPDATE task SET priority = 7; UPDATE attempt SET round = 9; UPDATE graph SET behind = 40;
    UPDATE bot SET events = 50; UPDATE service SET queues = 60; UPDATE queue SET hash = 70 WHERE number > 0;
    INSERT INTO bot_queue (bot_id, queue_id) VALUES ('b1', 0);
    DELETE FROM admission_dirty; INSERT INTO hold (task_id, reason) VALUES ({long}, 'mutex')"""


@pytest.fixture
def scene(database_url: str) -> Iterator[Scene]:
    yard = Grounds(database_url)
    yield set_scene(yard, database_url)
    yard.close()


def audits(scene: Scene) -> Counter[tuple[int, str]]:
    """Count the audit rows of repairs, by what they are about and what they say."""
    return Counter((row[0], row[1]) for row in scene.rows("SELECT subject_id, note FROM audit WHERE action = 'repair'"))


def sentences(findings: Iterable[Finding]) -> Counter[tuple[int, str]]:
    """Say what the audit should tell."""
    return Counter((int(one.subject) if one.is_keyed else NO_SUBJECT, str(one)) for one in findings)


def test_whatever_is_mended_is_audited_once(scene: Scene) -> None:
    scene.sql(EVERYWHERE)
    findings = found(scene.yard)
    assert check.repair(scene.yard.do, findings, "ann") == len(findings)
    told = sentences(findings)
    assert audits(scene) == told
    assert {one.kind for one in findings} == {
        "task_mutex", "task", "attempt", "graph", "bot", "service", "queue", "bot_queue", "hold",
    }  # fmt: skip


def test_an_act_of_a_repair_that_is_carried_out_again_is_audited_once(scene: Scene) -> None:
    """Nobody may know whether a commit happened: then it is tried again."""

    def twice(act: Callable[[Transaction], None]) -> None:
        scene.yard.do(act)
        scene.yard.do(act)

    scene.sql(EVERYWHERE)
    findings = found(scene.yard)
    check.repair(twice, findings, "ann")
    assert (sum(audits(scene).values()), found(scene.yard)) == (len(findings), [])


@pytest.mark.parametrize("commits", range(8))
def test_a_repair_that_ends_half_way_has_audited_what_it_mended(scene: Scene, commits: int) -> None:
    class Over(Exception):
        """Somebody pulled the plug."""

    def some(act: Callable[[Transaction], None]) -> None:
        nonlocal commits
        if not commits:
            raise Over
        commits -= 1
        scene.yard.do(act)

    scene.sql(EVERYWHERE)
    findings = found(scene.yard)
    with suppress(Over):
        check.repair(some, findings, "ann")
    left = found(scene.yard)
    told = sentences({*findings} - {*left})
    assert audits(scene) == told
