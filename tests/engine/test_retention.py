"""What has been kept for its time is deleted, nothing else is, and a crash in between does no harm."""

import re
import sqlite3
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import psycopg
import pytest

from taskyard.core.durations import DAY_MS
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import canonical
from taskyard.core.retention import ALL_POOLS, Kept
from taskyard.core.states import GraphState, Millis, Signal, State
from taskyard.engine.engine import Engine
from taskyard.engine.retention import is_elected
from taskyard.lifecycle import retention
from taskyard.lifecycle.children import ChildOf
from taskyard.lifecycle.commands import Cancel, Code, Goodbye, Hello, Output, Poll, Publish, Refusal, Rerun
from taskyard.lifecycle.doctor.check import doctor
from taskyard.lifecycle.submit import Submitted
from taskyard.store.queries import SQLITE, statements
from taskyard.store.repo.events import ServerRow
from taskyard.store.repo.retention import LAST_STATEMENTS, TASK_STATEMENTS
from taskyard.store.schema import metadata
from tests.engine.harness import EngineHarness, graph, noop, report, task
from tests.fork_server import KILLED, ForkServer
from tests.lifecycle.harness import Labels

#: Tables that say nothing of one graph, or that outlive it.
OUTLIVING: Final = {
    "admission_dirty", "admission_lock", "audit", "bot", "bot_dimensions", "bot_event", "bot_settings", "named_limit",
    "queue", "retention", "server", "service", "bot_snapshot", "event_stream", "streamed_event", "event_target",
    "webhook", "dead_delivery", "webhook_sender",
}  # fmt: skip
GONE: Final = frozenset(metadata.tables) - OUTLIVING
MANY: Final = 30


def row_counts(url: str, tables: Collection[str] = GONE) -> Mapping[str, int]:
    """Count the rows of tables: unless told otherwise, of all that have rows of graphs."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            return {name: connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables}  # noqa: S608
    with psycopg.connect(url) as postgres:
        found = {name: postgres.execute(f"SELECT COUNT(*) FROM {name}").fetchone() for name in tables}  # noqa: S608
    return {name: row[0] for name, row in found.items() if row is not None}


def run_graph(harness: EngineHarness, *, fails: bool = False, **said: object) -> Labels:
    """Run a graph that leaves rows in as many tables as one can."""
    inner = graph(x=noop())
    made = harness.submit(
        {
            "tags": {"a": "b"},
            "tasks": {
                "a": task(mutexes=[{"key": "m"}], tags=["k:v"]),
                "b": task("a", **said),
                "g": {"task": {"payload": {"graph": inner}}},
            },
        },
        key=f"key {harness.clock.now()}",
        actor="ada",
    )
    harness.settle()
    while leases := harness.claim(want=4):
        for lease in leases:
            common = (lease.task, lease.attempt, lease.fence)
            output = (Output(*common, 0, b"printed"),)
            harness.engine.publish(Publish(*common, result="7", progress="half", checkpoint=b"c"))
            ended = report(lease, Signal.FAIL if fails else Signal.SUCCEED)
            poll = harness.poll_command(0)
            harness.engine.poll(Poll("b1", "s1", poll.poll, (ended,), outputs=output))
        harness.settle()
    return made


def deleted(harness: EngineHarness, labels: Labels) -> bool:
    with harness.store.read() as repo:
        return repo.graphs.peek([labels.graph]) == []


def keep(harness: EngineHarness, days: int | None, *kinds: Kept, pool: str = ALL_POOLS) -> None:
    times = dict.fromkeys(kinds, None if days is None else days * DAY_MS)
    assert harness.engine.set_retention(pool, times) is None


def test_a_graph_is_deleted_with_every_row_that_it_has(harness: EngineHarness) -> None:
    harness.hello()
    before = row_counts(harness.store.url)
    run_graph(harness)
    again = run_graph(harness)
    with harness.store.read() as repo:
        task_id = again["b"]
        assert repo.output.sizes(task_id)
        assert repo.read.results(task_id)
    assert row_counts(harness.store.url) != before
    keep(harness, 30, Kept.GRAPHS)
    harness.clock.advance(30 * DAY_MS - 60_000)
    harness.engine.retention.run_once()
    assert not deleted(harness, again)
    harness.clock.advance(120_000)
    harness.engine.retention.run_once()
    assert deleted(harness, again)
    harness.clock.advance(DAY_MS)
    harness.engine.retention.run_once()  # blocks of attempts are deleted once a day
    assert row_counts(harness.store.url) == before


def test_every_table_with_rows_of_tasks_is_in_a_list_of_deletions() -> None:
    """A new table of this kind needs a deletion in `store/repo/retention.py`."""
    of_tasks = {
        name
        for name, table in metadata.tables.items()
        if "task_id" in table.columns or any(one.target_fullname == "task.id" for one in table.foreign_keys)
    }
    texts = " ".join(statements(SQLITE)[name].text for name in (*TASK_STATEMENTS, *LAST_STATEMENTS))
    # Nothing of a settled graph is in a continuation, and a pass forgets what it does not find.
    others = {"admission_dirty", "bot_event", "continuation"}
    assert of_tasks - set(re.findall(r"DELETE FROM (\w+)", texts)) - others == set()


def test_nothing_is_deleted_unless_it_is_configured(harness: EngineHarness) -> None:
    harness.hello()
    made = run_graph(harness)
    before = row_counts(harness.store.url)
    harness.clock.advance(10_000 * DAY_MS)
    harness.engine.retention.run_once()
    assert row_counts(harness.store.url) == before
    assert not deleted(harness, made)


def test_parts_of_a_graph_are_deleted_each_at_its_time(harness: EngineHarness) -> None:
    harness.hello()
    made = run_graph(harness)
    keep(harness, 10, Kept.OUTPUT)
    keep(harness, 20, Kept.RESULTS)
    rows = []
    for _ in range(4):
        harness.engine.retention.run_once()
        counts = row_counts(harness.store.url)
        rows.append((counts["output_chunk"] > 0, counts["result"] > 0, counts["progress"] > 0, counts["attempt"]))
        harness.clock.advance(9 * DAY_MS)
    attempts = rows[0][3]
    assert rows == [
        (True, True, True, attempts), (True, True, True, attempts),
        (False, True, True, attempts), (False, False, False, attempts),
    ]  # fmt: skip
    refused = harness.engine.renew(text_of(Key(made.graph)), ("b",))
    assert isinstance(refused, Refusal)
    assert "the results" in refused.text


def test_a_blocked_graph_keeps_what_a_rerun_needs_and_prints_anew(harness: EngineHarness) -> None:
    harness.hello()
    made = run_graph(harness, fails=True)
    assert harness.graph(made.graph).state is GraphState.BLOCKED
    keep(harness, 10, Kept.OUTPUT, Kept.RESULTS)
    harness.clock.advance(11 * DAY_MS)
    harness.engine.retention.run_once()
    counts = row_counts(harness.store.url)
    assert (counts["output_chunk"], counts["result"] > 0) == (0, True)
    harness.hello()
    harness.engine.rerun(Rerun(graph=made.graph))
    harness.settle()
    (lease,) = harness.claim()
    output = (Output(lease.task, lease.attempt, lease.fence, 0, b"again"),)
    harness.engine.poll(Poll("b1", "s1", "again", (report(lease, Signal.FAIL),), outputs=output))
    harness.engine.retention.run_once()
    assert row_counts(harness.store.url)["output_chunk"] == 1, "it has just settled again"
    harness.clock.advance(11 * DAY_MS)
    harness.engine.retention.run_once()
    assert row_counts(harness.store.url)["output_chunk"] == 0


def test_a_result_is_reused_until_its_output_is_deleted(harness: EngineHarness) -> None:
    document = graph(a=task(idempotent=True))
    harness.hello()
    harness.submit(document)
    harness.settle()
    for lease in harness.claim():
        harness.end(lease)
    harness.clock.advance(2 * DAY_MS)
    harness.hello()
    again = harness.submit(document)
    harness.settle()
    assert harness.tasks(again)["a"].reason == "reused"
    keep(harness, 1, Kept.OUTPUT)
    harness.engine.retention.run_once()
    last = harness.submit(document)
    harness.settle()
    assert harness.states(last)["a"] is State.WAITING


def test_only_settled_graphs_are_deleted(harness: EngineHarness) -> None:
    harness.hello()
    made = harness.submit(graph(a=task()), key="k")
    keep(harness, 1, Kept.GRAPHS)
    harness.clock.advance(5 * DAY_MS)
    harness.engine.retention.run_once()
    assert not deleted(harness, made)
    refused = harness.engine.delete_graph(text_of(Key(made.graph)))
    assert isinstance(refused, Refusal)
    assert (refused.code, "cancel it first" in refused.text) == (Code.CONFLICT, True)
    harness.engine.cancel(Cancel(graph=made.graph))
    assert harness.engine.delete_graph(text_of(Key(made.graph))) is None
    again = harness.engine.delete_graph(text_of(Key(made.graph)))
    assert isinstance(again, Refusal)
    assert again.code is Code.NOT_FOUND
    harness.engine.retention.run_once()
    assert deleted(harness, made)


def test_a_pool_keeps_its_graphs_for_a_time_of_its_own(harness: EngineHarness) -> None:
    short, long, both = (
        harness.submit(graph(**{f"t{place}": task(dimensions={"pool": pool}) for place, pool in enumerate(pools)}))
        for pools in (["lab"], ["ci"], ["lab", "ci"])
    )
    for made in (short, long, both):
        harness.engine.cancel(Cancel(graph=made.graph))
    keep(harness, 10, Kept.GRAPHS)
    keep(harness, 1, Kept.GRAPHS, pool="lab")
    harness.clock.advance(2 * DAY_MS)
    harness.engine.retention.run_once()
    assert [deleted(harness, made) for made in (short, long, both)] == [True, False, False]
    assert harness.engine.set_retention("lab", {}, [Kept.GRAPHS]) is None
    harness.clock.advance(9 * DAY_MS)
    harness.engine.retention.run_once()
    assert [deleted(harness, made) for made in (short, long, both)] == [True, True, True]


def test_a_submission_is_an_echo_until_its_graph_is_deleted(harness: EngineHarness) -> None:
    document = graph(a=noop())
    made = harness.submit(document, key="k")
    harness.settle()
    assert harness.engine.submit(document, key="k") == Submitted(made.graph, echo=True)
    id = text_of(Key(made.graph))
    assert harness.engine.delete_graph(id) is None
    taken = harness.engine.submit(document, graph_id=id)
    assert isinstance(taken, Refusal)
    assert "is being deleted" in taken.text
    other = harness.engine.submit(document, key="k")
    assert isinstance(other, Submitted)
    assert (other.echo, other.graph == made.graph) == (False, False)
    harness.engine.retention.run_once()
    assert harness.submit(document, graph_id=id).graph == made.graph


def test_children_and_graphs_inside_go_with_what_they_belong_to(harness: EngineHarness) -> None:
    harness.hello()
    made = run_graph(harness)
    with harness.store.read() as repo:
        (inner,) = repo.retention.inside(made.graph, 9)
    refused = harness.engine.delete_graph(text_of(Key(inner)))
    assert isinstance(refused, Refusal)
    assert "inside a task" in refused.text
    parent = harness.submit(graph(a=task()))
    (lease,) = harness.claim()
    child = harness.submit(graph(a=task()), child_of=ChildOf(lease.task))
    harness.end(lease)
    harness.settle()
    for one in (made, parent):
        assert harness.engine.delete_graph(text_of(Key(one.graph))) is None
    harness.engine.retention.run_once()
    with harness.store.read() as repo:
        assert repo.graphs.peek([inner]) == []
        assert repo.graphs.peek([child.graph]) != []
        assert repo.task_list.parents([child.graph])[child.graph][0] == parent["a"]


def test_old_bot_events_tokens_and_audits_are_deleted(harness: EngineHarness) -> None:
    for session in range(4):
        harness.engine.hello(Hello("b1", f"s{session}", canonical({"id": "b1", "pool": "default"})))
        harness.engine.goodbye(Goodbye("b1", f"s{session}"))
    now = harness.clock.now()
    tokens = [("t1", "user", "n", "d", "[]", None, now, now + DAY_MS), ("t2", "user", "n", "d", "[]", None, now, None)]
    with harness.store.write() as repo:
        repo.tokens.add(tokens)
        repo.events.add_audits([(now, "ada", "set", 0, "old")])
    made = harness.submit(graph(a=noop()), actor="ada")
    keep(harness, 50, Kept.AUDIT)
    keep(harness, None, Kept.BOTS)
    harness.clock.advance(100 * DAY_MS)
    harness.engine.retention.run_once()
    with harness.store.read() as repo:
        assert set(repo.tokens.find(["t1", "t2"])) == {"t2"}
        kinds = [event[3] for event in repo.bots.events("b1", 9)]
        audits = repo.events.page_audits(None, 2**60, 99)
    assert len(kinds) == len(set(kinds)) == 2, "the newest of each says whether the bot is there"
    assert {audit.subject for _, audit in audits} == {made.graph}, "what it is about exists"
    assert harness.engine.set_retention(ALL_POOLS, {}, [Kept.BOTS]) is None
    harness.engine.retention.run_once()
    with harness.store.read() as repo:
        assert repo.retention.bots("", 9) == []


def test_dead_bots_are_forgotten_at_the_times_of_their_pools(harness: EngineHarness) -> None:
    for bot, pool in (("b1", "lab"), ("b2", "ci"), ("b3", "ci")):
        harness.hello(bot, pool=pool)
        if bot != "b3":
            harness.engine.goodbye(Goodbye(bot, "s1"))
    keep(harness, 3, Kept.BOTS, pool="ci")
    seen = []
    for _ in range(3):
        harness.engine.retention.run_once()
        with harness.store.read() as repo:
            seen.append([bot for bot, _ in repo.retention.bots("", 9)])
        harness.clock.advance(15 * DAY_MS)
    assert seen == [["b1", "b2", "b3"], ["b1", "b3"], ["b3"]], "one has not ended"


def test_what_a_bot_was_is_kept_as_long_as_graphs_with_its_attempts(harness: EngineHarness) -> None:
    harness.hello(os="linux")
    made = run_graph(harness)
    harness.hello(os="plan9")

    def known() -> set[str]:
        with harness.store.read() as repo:
            ids = {row.snapshot for row in repo.attempts.of(made["b"]) if row.snapshot is not None}
            return {dict(one.dimensions)["os"][0] for one in repo.bots.snapshots(ids).values()}

    harness.clock.advance(40 * DAY_MS)
    harness.engine.retention.run_once()
    assert known() == {"linux"}, "graphs are kept for ever"
    keep(harness, 50, Kept.GRAPHS)
    keep(harness, 100, Kept.GRAPHS, pool="lab")
    harness.clock.advance(20 * DAY_MS)
    harness.engine.retention.run_once()
    with harness.store.read() as repo:
        assert repo.attempts.of(made["b"]) == [], "its graph is deleted"
    assert row_counts(harness.store.url, {"bot_snapshot"}) == {"bot_snapshot": 2}, "a pool keeps graphs for longer"
    keep(harness, 50, Kept.GRAPHS, pool="lab")
    harness.engine.retention.run_once()
    assert row_counts(harness.store.url, {"bot_snapshot"}) == {"bot_snapshot": 1}, "one is what the bot is now"


def queues(harness: EngineHarness) -> set[str]:
    """Return the values of `os` of all queues."""
    with harness.store.read() as repo:
        return {dict(queue.dimensions).get("os", ("",))[0] for queue in repo.queues.after(0)}


def on(os: str) -> Mapping[str, object]:
    return graph(a=task(dimensions={"os": os}))


def end_all(harness: EngineHarness, os: str) -> None:
    harness.hello(os=os)
    for lease in harness.claim(want=9):
        harness.end(lease)


def test_a_queue_is_deleted_when_no_task_has_come_into_it_for_its_time_and_none_is_left(harness: EngineHarness) -> None:
    ended, kept = harness.submit(on("ended")), harness.submit(on("kept"))
    for name in ("ended", "kept"):
        end_all(harness, name)
    harness.submit(on("waits"))
    assert harness.engine.delete_graph(text_of(Key(ended.graph))) is None
    harness.clock.advance(27 * DAY_MS)
    harness.submit(on("used"))
    harness.engine.retention.run_once()
    assert queues(harness) == {"ended", "kept", "waits", "used"}
    harness.clock.advance(2 * DAY_MS)
    harness.submit(on("newest"))
    harness.engine.retention.run_once()
    assert queues(harness) == {"kept", "waits", "used", "newest"}
    assert harness.engine.delete_graph(text_of(Key(kept.graph))) is None
    keep(harness, None, Kept.QUEUES)
    harness.clock.advance(2 * DAY_MS)
    harness.engine.retention.run_once()
    harness.clock.advance(2 * DAY_MS)
    keep(harness, 3, Kept.QUEUES, pool="lab")
    harness.engine.retention.run_once()
    assert "kept" in queues(harness), "queues are kept for ever"
    keep(harness, 3, Kept.QUEUES)
    harness.clock.advance(2 * DAY_MS)
    harness.engine.retention.run_once()
    assert queues(harness) == {"waits", "used", "newest"}


def test_a_queue_that_was_deleted_is_made_anew_and_served(harness: EngineHarness) -> None:
    made = harness.submit(on("plan9"))
    end_all(harness, "plan9")
    harness.submit(on("newest"))
    assert harness.engine.delete_graph(text_of(Key(made.graph))) is None
    harness.clock.advance(29 * DAY_MS)
    harness.engine.retention.run_once()
    assert queues(harness) == {"newest"}
    again = harness.submit(on("plan9"))
    end_all(harness, "plan9")
    assert harness.states(again) == {"a": State.SUCCESSFUL}


def test_a_task_goes_on_with_a_slice_whose_queue_was_deleted(harness: EngineHarness) -> None:
    slices = [
        {"dimensions": {"os": "first"}, "expires": "7d", "wait_for_capacity": True},
        {"dimensions": {"os": "second"}, "expires": "7d", "wait_for_capacity": True},
    ]
    made = harness.submit(graph(a=task(slices=slices)))
    harness.submit(on("newest"))
    keep(harness, 1, Kept.QUEUES)
    harness.clock.advance(6 * DAY_MS)
    harness.engine.retention.run_once()
    assert queues(harness) == {"first", "newest"}
    harness.clock.advance(2 * DAY_MS)
    harness.settle()
    end_all(harness, "second")
    assert harness.states(made) == {"a": State.SUCCESSFUL}


def test_another_server_forgets_a_queue_whose_id_is_given_to_another_one(postgres_url: str) -> None:
    # Found by search: their hashes are equal, so the second gets the id of the first once that is deleted.
    first, second = ({"pool": "lab", "device": device} for device in ("d30797", "d109039"))
    with EngineHarness(postgres_url) as one, EngineHarness(postgres_url) as two:
        for bot, has in {"b1": first, "b2": second}.items():
            two.hello(bot, 8, **has)
        made = one.submit(graph(a=task(dimensions=first)))
        (lease,) = two.claim(9, "b1")
        two.engine.poll(two.poll_command(0, "b1", (report(lease, Signal.SUCCEED),)))
        one.submit(on("newest"))
        with one.store.read() as repo:
            (old,) = repo.tasks.read([made["a"]])
        assert one.engine.delete_graph(text_of(Key(made.graph))) is None
        for harness in (one, two):
            harness.clock.advance(29 * DAY_MS)
        one.engine.retention.run_once()
        assert queues(one) == {"newest"}
        again = one.submit(graph(a=task(dimensions=second)))
        assert one.tasks(again)["a"].queue == old.queue
        for bot, has in {"b1": first, "b2": second, "b3": first}.items():
            two.hello(bot, 8, **has)
        assert [lease.task for bot in ("b1", "b3", "b2") for lease in two.claim(9, bot)] == [again["a"]]
        assert one.tasks(again)["a"].bot == "b2"


def test_of_several_servers_the_first_by_name_that_is_up_is_elected() -> None:
    now = Millis(1_000_000)
    servers = {name: ServerRow(name, 0, seen) for name, seen in (("a", 0), ("b", now), ("c", now))}
    assert [name for name in servers if is_elected(name, servers, now)] == ["b"]
    assert is_elected("", {}, now)


def test_a_server_that_is_not_elected_deletes_what_a_person_asked_it_to(postgres_url: str) -> None:
    with EngineHarness(postgres_url) as harness:
        made, due = (harness.submit(graph(a=noop())) for _ in range(2))
        harness.settle()
        keep(harness, 1, Kept.GRAPHS)
        harness.clock.advance(2 * DAY_MS)
        with harness.store.write() as repo:
            repo.servers.save(ServerRow("!first", harness.clock.now(), harness.clock.now()))
        assert harness.engine.delete_graph(text_of(Key(made.graph))) is None
        harness.engine.retention.run_once()
        assert not deleted(harness, made)
        harness.engine.retention.run_once(asked=True)
        assert (deleted(harness, made), deleted(harness, due)) == (True, False)


def test_two_servers_that_delete_at_once_do_no_harm(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS_MAX", 20)
    with EngineHarness(postgres_url) as one, EngineHarness(postgres_url) as two:
        one.hello()
        before = row_counts(postgres_url)
        made = [run_graph(one) for _ in range(4)]
        keep(one, 1, Kept.GRAPHS)
        for harness in (one, two):
            harness.clock.advance(2 * DAY_MS)
        assert one.engine.delete_graph(text_of(Key(made[0].graph))) is None
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(harness.engine.retention.run_once) for harness in (one, two)]:
                done.result()
        one.engine.retention.run_once()
        assert row_counts(postgres_url) == before


def test_no_transaction_deletes_more_than_a_page(
    sqlite_harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_MAX", 20)
    monkeypatch.setattr(retention, "TASKS_MAX", 7)
    before = row_counts(sqlite_harness.store.url)
    made = sqlite_harness.submit(
        graph(**{f"t{place}": noop(*(f"t{one}" for one in range(place))) for place in range(MANY)})
    )
    sqlite_harness.settle()
    assert sqlite_harness.engine.delete_graph(text_of(Key(made.graph))) is None
    pages = 0
    while sqlite_harness.engine.transact(retention.purge_hidden_page):
        pages += 1
        with sqlite_harness.store.read() as repo:
            assert doctor(repo, sqlite_harness.clock.now()) == []
    assert pages > MANY * MANY // 2 // 20
    sqlite_harness.clock.advance(2 * DAY_MS)
    sqlite_harness.engine.retention.run_once()  # blocks of attempts are deleted once a day
    assert row_counts(sqlite_harness.store.url) == before


def delete_in_pages(url: str) -> None:
    with pytest.MonkeyPatch.context() as patch, Engine.open(url) as engine:
        patch.setattr(retention, "ROWS_MAX", 20)
        patch.setattr(retention, "TASKS_MAX", 7)
        engine.retention.run_once()


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_process_that_is_killed_while_it_deletes_leaves_a_consistent_store(database_url: str, side: str) -> None:
    with EngineHarness(database_url) as harness:
        harness.hello()
        before = row_counts(database_url)
        for _ in range(2):
            made = run_graph(harness)
            harness.engine.delete_graph(text_of(Key(made.graph)))
    kills = 0
    with ForkServer(delete_in_pages) as process:
        for count in (1, 2, 3, 5, 4, 7, 1, 9, 11, 1_000):
            ended = process(f"purge.{side}:exit@{count}", database_url)
            kills += ended == KILLED
            with Engine.open(database_url) as engine:
                assert engine.doctor() == []
                engine.retention.stop()
            if ended == 0:
                break
    assert kills >= 3
    assert row_counts(database_url) == before
