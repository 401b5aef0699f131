"""Whole lives of tasks: admitted, claimed, succeeded, their dependents released. Two edges a task, everything on.

A command is a bot's poll: it reports one result and wants one task. Commands that share a commit share its cost; so do
the results of one bot, when it reports several at once. The floor is what the same database does with bare updates of
one column, as many to a commit: transitions a second, without a rule, an event or an attempt.

Every figure is the best of some runs: whatever else the machine does can only make one slower.
"""

import sqlite3
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec

from benchmarks.report import Case, main
from benchmarks.stores import Open, WriterHarness, layered, leases_of, postgres, sqlite
from taskyard.store.connection import Store

if TYPE_CHECKING:
    from taskyard.lifecycle.commands import Lease

P = ParamSpec("P")
#: How many tasks are finished already in the store that has many.
FINISHED: Final = 1_000_000
RUNS: Final = 3


def measure(quick: bool) -> list[Case]:
    """Measure both databases."""
    few, many = (200, 1_000) if quick else (3_000, 40_000)
    best = _Best(1 if quick else RUNS)
    alone = best.of(lives, sqlite, 1, 1, few)
    together = best.of(lives, sqlite, 64, 1, many)
    packed = best.of(lives, sqlite, 1, 64, many)
    old = best.of(lives, sqlite, 64, 1, many, FINISHED // (1_000 if quick else 1))
    floor = best.of(transitions, 64, many)
    return [
        Case("sqlite, 1 command per commit", alone, "lives/s", "higher", 1_500, floor=best.of(transitions, 1, few)),
        Case("sqlite, 64 commands per commit", together, "lives/s", "higher", 20_000, 50_000, floor),
        Case("sqlite, 64 results of one bot per commit", packed, "lives/s", "higher", floor=floor),
        Case("sqlite, 64, slower with 1 000 000 finished", together / old, "times", "lower", 1.3),
        Case("postgres, 1 command per commit", best.of(lives, postgres, 1, 1, few // 2), "lives/s", "higher"),
        Case(
            "postgres, 64 commands per commit",
            best.of(lives, postgres, 64, 1, many // 4),
            "lives/s",
            "higher",
            6_000,
            15_000,
        ),
    ]


class _Best:
    """Measures the same thing several times."""

    def __init__(self, runs: int) -> None:
        self._runs = runs

    def of(self, measured: Callable[P, float], *args: P.args, **kwargs: P.kwargs) -> float:
        """Give the highest figure."""
        return max(measured(*args, **kwargs) for _ in range(self._runs))


def lives(database: Open, bots: int, each: int, count: int, finished: int = 0) -> float:
    """Measure lives a second: `bots` polls in a commit, each with `each` results and a request for as many."""
    with database() as store:
        harness = WriterHarness(store)
        if finished:
            _fill(store, finished)
        names = harness.hello(bots)
        harness.submit(layered(count, max(64, bots * each)))
        held: list[tuple[Lease, ...]] = [()] * bots
        ended = 0
        began = time.perf_counter()
        while ended < count:
            ended += sum(map(len, held))
            polls = [harness.poll(name, leases, each) for name, leases in zip(names, held, strict=True)]
            held = [leases_of(answer) for answer in harness.do(polls)]
        return count / (time.perf_counter() - began)


def transitions(together: int, count: int) -> float:
    """Measure bare updates a second, `together` of them in a commit."""
    with sqlite() as store:
        connection = sqlite3.connect(store.url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, state TEXT)")
        connection.executemany("INSERT INTO bare VALUES (?, 'waiting')", [(id,) for id in range(count)])
        began = time.perf_counter()
        for first in range(0, count, together):
            rows = [("running", id, "waiting") for id in range(first, min(first + together, count))]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("UPDATE bare SET state = ? WHERE id = ? AND state = ?", rows)
            connection.execute("COMMIT")
        spent = time.perf_counter() - began
        connection.close()
        return count / spent


def _fill(store: Store, count: int) -> None:
    """Put tasks into a store that have ended, with what a life leaves behind."""
    connection = sqlite3.connect(store.url.removeprefix("sqlite:///"), isolation_level=None)
    connection.executescript(_FINISHED.format(count=count, base=_OLD))
    connection.close()


#: Keys of the year 2010: what is older has higher keys.
_OLD: Final = 9_200_000_000_000_000_008
_FINISHED: Final = """
BEGIN;
CREATE TEMP TABLE n AS
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n;
INSERT INTO graph (id, state, created_ms, moved_ms) VALUES ({base}, 'finished', 0, 0);
INSERT INTO task (id, graph_id, previous_state, state, reason, moved_ms, rules, kind, priority, created_ms, weight,
                  join_rule, on_impossible, queue_id, attempt, met)
    SELECT i * 16 + {base}, {base}, 'running', 'successful', 'done', 0, '', 'command', 100, 0, 1, 'all', 'hold', 0, 1, 2
      FROM n;
INSERT INTO task_definition (id, graph_id, label, definition, submitter, user_name)
    SELECT i * 16 + {base}, {base}, 't' || i, '{{}}', '', '' FROM n;
INSERT INTO edge (prerequisite_id, dependent_id, on_end)
    SELECT (i - 1) * 16 + {base}, i * 16 + {base}, 'success' FROM n WHERE i > 2
    UNION ALL SELECT (i - 2) * 16 + {base}, i * 16 + {base}, 'success' FROM n WHERE i > 2;
INSERT INTO attempt (task_id, number, bot_id, session, poll_id, claimed_ms, ended_ms, signal, reason)
    SELECT i * 16 + {base}, 1, 'bot', 's', 'p', 0, 1, 'succeed', 'done' FROM n;
INSERT INTO event (subject_id, number, graph_id, at_ms, facts)
    SELECT n.i * 16 + {base}, n.i * 4 + 2 * k.i, {base}, 0,
           '[["pending","waiting","admit",1,"bot","under_way"],["waiting","running","claim",1,"bot","under_way"]]'
      FROM n JOIN n k ON k.i <= 2;
COMMIT;
"""


if __name__ == "__main__":
    sys.exit(main("lives", measure))
