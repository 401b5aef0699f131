"""Why a task is not running: every reason, as data and as a sentence."""

from dataclasses import replace

import pytest

from taskyard.core.admission.rules import Held
from taskyard.core.explain import (
    Ahead,
    BotWord,
    Ending,
    Guard,
    Other,
    Prerequisite,
    Situation,
    Standing,
    Why,
    hangs_on,
    why,
)
from taskyard.core.explain import bots as standing
from taskyard.core.explain_text import ENDINGS, sentence, span
from taskyard.core.fleet import BotFacts
from taskyard.core.graph.gate import EdgeState
from taskyard.core.launch import Role, rule_words
from taskyard.core.matching import canonical, with_pool
from taskyard.core.states import BotId, Join, Kind, Millis, On, Reason, State, TaskId
from tests.each_row import each_row

NOW = Millis(1_800_000_000_000)
EARLIER = Millis(NOW - 12 * 60_000)
GPU = canonical({"pool": "lab", "gpu": "h100"})
NO_KEY = "cannot be opened: the server does not have its key; put that key back, or set it anew"
ME, OTHER = TaskId("me"), TaskId("7f3a")


def bot(
    name: str,
    gpu: str = "h100",
    busy: int = 0,
    seen: Millis = NOW,
    quarantined: str | None = None,
    pool: str = "lab",
) -> BotFacts:
    dimensions = canonical({"id": name, "pool": pool, "gpu": gpu})
    return BotFacts(BotId(name), dimensions, seen, busy=busy, quarantined=quarantined, missing=seen < NOW)


def pending(held: Held | None, *bots: BotFacts) -> Situation:
    return Situation("test", State.PENDING, held=held, dimensions=GPU, bots=standing(GPU, bots))


def waiting(*bots: BotFacts, ahead: int = 0) -> Situation:
    return Situation("test", State.WAITING, dimensions=GPU, bots=standing(GPU, bots), ahead=Ahead(ahead))


def waiting_in_default(*bots: BotFacts) -> Situation:
    asked = with_pool(canonical({"gpu": "h100"}))
    return Situation("test", State.WAITING, dimensions=asked, bots=standing(asked, bots))


def edge(label: str, state: State, edge: EdgeState, on: On = On.SUCCESS) -> Prerequisite:
    return Prerequisite(label, state, edge, on)


BUILD_RUNS = edge("build", State.RUNNING, EdgeState.AWAITED)
LINT_DONE = edge("lint", State.SUCCESSFUL, EdgeState.MET)
BUILD_FAILED = edge("build", State.FAILED, EdgeState.BROKEN)
BLOCKER = Other(State.RUNNING, OTHER, "build", "aa")
BUILD_FINE = edge("build", State.SUCCESSFUL, EdgeState.IMPOSSIBLE, On.FAILURE)
MANY = tuple(edge(f"part{n}", State.PENDING, EdgeState.AWAITED) for n in range(5))

CASES = [
    (
        Situation("test", State.UNSCHEDULED, prerequisites=(BUILD_RUNS, LINT_DONE)),
        Reason.PREREQUISITE,
        "test is unscheduled: it waits for build (running)",
    ),
    (
        Situation("test", State.UNSCHEDULED, prerequisites=(BUILD_RUNS, MANY[0]), join=Join.ANY),
        Reason.PREREQUISITE,
        "test is unscheduled: it waits for one of build (running), part0 (pending)",
    ),
    (
        Situation("test", State.UNSCHEDULED, prerequisites=MANY),
        Reason.PREREQUISITE,
        "test is unscheduled: it waits for part0 (pending), part1 (pending), part2 (pending) and 2 more",
    ),
    (
        Situation("test", State.BLOCKED, prerequisites=(BUILD_FAILED, BUILD_RUNS, LINT_DONE)),
        Reason.PREREQUISITE_FAILED,
        "test is blocked: it needs build (failed); rerun that to go on",
    ),
    (
        Situation("page", State.SKIPPED, prerequisites=(BUILD_FINE,)),
        Reason.CONDITION,
        "page is skipped: its condition cannot come true after build (successful)",
    ),
    (
        pending(None),
        Reason.UNSEEN,
        "test is pending: the next pass of the scheduler decides",
    ),
    (
        pending(Held(ME, Reason.NOT_BEFORE, until=Millis(NOW + 90_000))),
        Reason.NOT_BEFORE,
        "test is pending: it may start in 1 min, at 2027-01-15 08:01:30Z",
    ),
    (
        replace(pending(Held(ME, Reason.MUTEX, "device:7", OTHER, EARLIER)), other=BLOCKER),
        Reason.MUTEX,
        "test is pending: mutex device:7 is held by build (task 7f3a of graph aa, running) for 12 min",
    ),
    (
        pending(Held(ME, Reason.LIMIT, "licences", used=3, total=5, need=3)),
        Reason.LIMIT,
        "test is pending: limit licences has 3 of 5 in use, and it needs 3",
    ),
    (
        pending(Held(ME, Reason.CAPACITY, "lab", since=EARLIER, place=3, used=7, total=10, need=4)),
        Reason.CAPACITY,
        (
            "test is pending: pool lab has 7 of 10 in use, and it needs 4; "
            "it has waited for 12 min; it is number 3 in line"
        ),
    ),
    (
        replace(pending(Held(ME, Reason.RESERVED, "lab", OTHER, EARLIER, place=2)), ahead=Ahead(1, whole=False)),
        Reason.RESERVED,
        (
            "test is pending: pool lab is kept free for a task that you may not see, which has waited longer; "
            "it has waited for 12 min; it is number 2 in line, or further back"
        ),
    ),
    (
        pending(Held(ME, Reason.NO_BOT), bot("rack1", gpu="a100"), bot("rack2", gpu="a100")),
        Reason.NO_BOT,
        (
            "test is pending: it would hold its mutexes for nothing; "
            "no bot has gpu: h100; the nearest is rack1 (gpu: a100)"
        ),
    ),
    (
        pending(Held(ME, Reason.NO_BOT), bot("rack1", seen=Millis(NOW - 7_200_000))),
        Reason.NO_BOT,
        ("test is pending: it would hold its mutexes for nothing; 1 bot could run it, but rack1 was last seen 2 h ago"),
    ),
    (
        Situation("test", State.UNSCHEDULED),
        Reason.PREREQUISITE,
        "test is unscheduled: the ends of its prerequisites are about to reach it",
    ),
    (
        waiting(),
        Reason.NO_BOT,
        "test is waiting: there is no bot",
    ),
    (
        waiting(bot("rack1", gpu="a100")),
        Reason.NO_BOT,
        "test is waiting: no bot has gpu: h100; the nearest is rack1 (gpu: a100)",
    ),
    (
        waiting_in_default(bot("rack1"), bot("rack0", pool="default", gpu="a100")),
        Reason.NO_BOT,
        "test is waiting: no bot of pool default could run it; rack1 could, but is in pool lab",
    ),
    (
        waiting(bot("rack1", busy=1), bot("rack2", busy=1), bot("rack3", gpu="a100"), ahead=4),
        Reason.BOTS_BUSY,
        "test is waiting: 2 bots could run it and all are busy; 4 tasks before it",
    ),
    (
        waiting(bot("rack1", busy=1)),
        Reason.BOTS_BUSY,
        "test is waiting: 1 bot could run it and it is busy; it is next",
    ),
    (
        waiting(bot("rack1", quarantined="disk full"), bot("rack2", seen=Millis(NOW - 7_200_000))),
        Reason.BOTS_AWAY,
        "test is waiting: 2 bots could run it, but rack1 is quarantined (disk full), rack2 was last seen 2 h ago",
    ),
    (
        waiting(bot("rack1"), bot("rack2", busy=1), ahead=1),
        Reason.IN_LINE,
        "test is waiting: 1 bot could run it now; 1 task before it",
    ),
    (
        Situation("test", State.RUNNING, attempt=2, bot=BotId("rack1"), since=EARLIER),
        Reason.UNDER_WAY,
        "test is running: attempt 2 on rack1 for 12 min",
    ),
    (
        Situation("test", State.RUNNING, attempt=2, bot=BotId("rack1"), assigned=True, since=EARLIER),
        Reason.ASSIGNED,
        "test is running: attempt 2 is in the hands of rack1 for 12 min, and has not begun",
    ),
    (
        Situation("go", State.RUNNING, kind=Kind.APPROVAL, attempt=1, since=EARLIER),
        Reason.APPROVAL,
        "go is running: a person has to approve it; it has waited for 12 min",
    ),
    (
        Situation("project:web", State.RUNNING, kind=Kind.LINK, attempt=1, since=EARLIER, other=BLOCKER),
        Reason.UPDATE,
        "project:web is running: it waits for an update, build (task 7f3a of graph aa, running), for 12 min",
    ),
    (
        replace(
            pending(Held(ME, Reason.MUTEX, "project:web", OTHER, EARLIER)),
            other=BLOCKER,
            rule=rule_words("project:web", Role.PROJECT_UPDATE, Role.PROJECT_UPDATE),
        ),
        Reason.MUTEX,
        (
            "test is pending: one project update per project: web is being updated by "
            "build (task 7f3a of graph aa, running) for 12 min"
        ),
    ),
    (
        Situation("test", State.PENDING, held=Held(TaskId("t"), Reason.NO_SECRET, "lab/deploy")),
        Reason.NO_SECRET,
        "test is pending: there is no secret lab/deploy; set it with: taskyard secret set",
    ),
    (
        Situation("test", State.PENDING, held=Held(TaskId("t"), Reason.NO_SECRET, "")),
        Reason.NO_SECRET,
        "test is pending: its secret bytes were dropped when no bot could run it; submit the request again",
    ),
    (
        Situation("test", State.PENDING, held=Held(TaskId("t"), Reason.NO_SECRET_KEY, "lab/deploy")),
        Reason.NO_SECRET_KEY,
        f"test is pending: secret lab/deploy {NO_KEY}",
    ),
    (
        Situation("test", State.STOPPING, attempt=1, bot=BotId("rack1")),
        Reason.STOP_ASKED,
        "test is stopping: cancel was asked; rack1 is ending attempt 1",
    ),
    (
        Situation(
            "test",
            State.PENDING,
            held=Held(ME, Reason.DUPLICATE_OF, since=EARLIER),
            other=Other(State.RUNNING, TaskId("7f3a"), "build", "9c1e"),
        ),
        Reason.DUPLICATE_OF,
        "test is pending: build (task 7f3a of graph 9c1e, running) does the same work, and its result will be reused",
    ),
    (
        Situation("test", State.PENDING, held=Held(ME, Reason.DUPLICATE_OF)),
        Reason.DUPLICATE_OF,
        "test is pending: an equal task has ended, and its result is about to be reused",
    ),
    (
        Situation("test", State.SUCCESSFUL, ending=Ending(Reason.REUSED), since=EARLIER),
        Reason.REUSED,
        "test is successful: an equal result was known, 12 min ago",
    ),
    (
        Situation("test", State.FAILED, ending=Ending(Reason.EXIT_CODE, 2, BotId("rack1"), 3), since=EARLIER),
        Reason.EXIT_CODE,
        "test is failed: exit code 3 in attempt 2 on rack1, 12 min ago",
    ),
    (
        Situation("test", State.ERROR, ending=Ending(Reason.BOT_LOST, 1, BotId("rack1")), since=EARLIER),
        Reason.BOT_LOST,
        "test is in error: its bot was lost in attempt 1 on rack1, 12 min ago",
    ),
]


@each_row(("task", "reason", "said"), CASES, ids=[f"{c[0].state}-{c[1]}-{n}" for n, c in enumerate(CASES)])
def test_why_a_task_is_not_running(task: Situation, reason: Reason, said: str) -> None:
    answer = why(task)
    assert answer.reason is reason
    assert answer.state is task.state
    assert sentence(answer, NOW) == said


def test_every_reason_for_not_running_has_a_case() -> None:
    reasons = list(Reason)
    not_running = set(reasons[: reasons.index(Reason.DONE)])
    assert not_running <= {reason for _, reason, _ in CASES}


def test_every_reason_for_an_end_has_a_text() -> None:
    reasons = list(Reason)
    assert set(reasons[reasons.index(Reason.DONE) :]) | {Reason.NO_BOT, Reason.PREREQUISITE_FAILED} == set(ENDINGS)


@each_row("state", State)
def test_there_is_an_answer_in_every_state_even_when_nothing_else_is_known(state: State) -> None:
    answer = why(Situation("t", state, ending=Ending(Reason.ASKED)))
    assert sentence(answer, NOW).startswith("t is in error: " if state is State.ERROR else f"t is {state}: ")


def test_the_answer_names_the_guard_that_holds_the_task() -> None:
    guards = {state: why(Situation("t", state, ending=Ending(Reason.ASKED))).guard for state in State}
    assert {state: guard for state, guard in guards.items() if guard} == {
        State.UNSCHEDULED: Guard.GRAPH,
        State.BLOCKED: Guard.GRAPH,
        State.SKIPPED: Guard.GRAPH,
        State.PENDING: Guard.ADMISSION,
        State.WAITING: Guard.MATCHING,
    }


def test_the_answer_is_data() -> None:
    answer = why(waiting(bot("rack1", busy=1), bot("rack2", quarantined="hot"), ahead=2))
    assert isinstance(answer, Why)
    assert answer.bots
    assert answer.bots.standing == ((Standing.BUSY, 1), (Standing.QUARANTINED, 1))
    assert answer.bots.named == (BotWord(BotId("rack2"), Standing.QUARANTINED, "hot", NOW),)
    assert answer.ahead == Ahead(2)


def test_only_the_prerequisites_that_hold_the_task_are_named() -> None:
    task = Situation("test", State.BLOCKED, prerequisites=(BUILD_FAILED, BUILD_RUNS, LINT_DONE))
    assert why(task).prerequisites == (BUILD_FAILED,)


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "a moment"),
        (999, "a moment"),
        (1_000, "1 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_a_duration_is_written_as_people_say_it(ms: int, said: str) -> None:
    assert span(ms) == said


def test_a_dead_bot_is_the_nearest_only_where_no_live_one_is_as_near() -> None:
    dead, live = bot("rack1", gpu="a100", seen=EARLIER), bot("rack2", gpu="a100")
    answer = why(waiting(dead, live))
    assert answer.bots
    assert answer.bots.nearest
    assert answer.bots.nearest.bot == "rack2"


@each_row("state", State)
def test_what_a_task_hangs_on_follows_from_its_state(state: State) -> None:
    awaited = {State.UNSCHEDULED, State.BLOCKED, State.PENDING, State.WAITING, State.RUNNING, State.STOPPING}
    failed = {State.FAILED, State.ERROR, State.CANCELED}
    expected = {
        State.UNSCHEDULED: awaited,
        State.BLOCKED: failed,
        State.SKIPPED: failed | {State.SUCCESSFUL, State.SKIPPED},
        State.FAILED: failed,
    }
    reasons = {State.SKIPPED: Reason.CONDITION, State.FAILED: Reason.PREREQUISITE_FAILED}
    assert hangs_on(state, reasons.get(state, Reason.PREREQUISITE)) == expected.get(state, set())
    assert hangs_on(State.FAILED, Reason.EXIT_CODE) == set()
