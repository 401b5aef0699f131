"""What makes two idempotent tasks equal, and what becomes of the second."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.graph.model import Slice
from taskyard.core.graph.parse import validate
from taskyard.core.reuse import (
    IDS_MAX,
    REUSE_WINDOW_MS,
    Course,
    KeyState,
    Received,
    Result,
    ReusePolicy,
    Ruling,
    SliceText,
    choose,
    course,
    key,
    received_key,
    reusable,
    slice_text,
)
from taskyard.core.states import Millis, State, TaskId
from tests.each_row import each_row

S = State
RUN, REUSE, FOLLOW = Course.RUN, Course.REUSE, Course.FOLLOW
NOW = Millis(1_800_000_000_000)
WINDOW_MS = 1_000
#: Texts that look like the ids of tasks, and one that only nearly does.
ONE, OTHER, THIRD, NO_ID = "1234567890abcde8", "0fedcba987654328", "7777777777777778", "9234567890abcde8"


def text(**task: Any) -> SliceText:
    """Write the first slice of a task as text."""
    document = {"tasks": {"a": {"task": {"payload": {"command": ["make"]}, "idempotent": True} | task}}}
    found = validate(document, now=NOW)
    assert found.graph is not None, found.faults
    return as_text(found.graph.tasks["a"].slices[0])


def as_text(one: Slice) -> SliceText:
    return slice_text(one.kind.value, one.dimensions, one.payload)


def key_of(submitter: str | None = "ann", received: Received = Received(), **task: Any) -> str:  # noqa: B008 - it is frozen
    return key(text(**task), submitter, received, {})


# The key.


@each_row(
    ("what", "task"),
    [
        ("another argument", {"payload": {"command": ["make", "all"]}}),
        ("an argument apart", {"payload": {"command": ["ma", "ke"]}}),
        ("another kind", {"payload": {"script": "make"}}),
        ("an environment", {"payload": {"command": ["make"], "env": {"A": "1"}}}),
        ("another time-out", {"payload": {"command": ["make"], "timeout": "5m"}}),
        ("another pool", {"dimensions": {"pool": "lab"}}),
        ("another dimension", {"dimensions": {"os": "Linux"}}),
        ("an alternative", {"dimensions": {"os": "Linux|Mac"}}),
    ],
)
def test_whatever_the_outcome_depends_on_changes_the_key(what: str, task: Mapping[str, Any]) -> None:
    assert key_of(**task) != key_of(), what


@each_row(
    ("what", "task"),
    [
        ("priority", {"priority": 3}),
        ("tags", {"tags": {"team": "core"}}),
        ("deadline", {"deadline": "5m"}),
        ("retries", {"retries": 0}),
        ("mutexes", {"mutexes": [{"key": "device:7"}]}),
        ("weight", {"weight": 5}),
        ("the default pool, by its name", {"dimensions": {"pool": "default"}}),
        ("how long it waits for a bot", {"slices": [{"expires": "5m", "wait_for_capacity": False}]}),
    ],
)
def test_what_says_nothing_about_the_outcome_is_not_in_the_key(what: str, task: Mapping[str, Any]) -> None:
    assert key_of(**task) == key_of(), what


def test_the_order_of_keys_in_the_document_does_not_matter() -> None:
    one = key_of(payload={"command": ["make"], "env": {"A": "1", "B": "2"}}, dimensions={"os": "Linux", "gpu": "h100"})
    other = key_of(
        payload={"env": {"B": "2", "A": "1"}, "command": ["make"]}, dimensions={"gpu": "h100", "os": "Linux"}
    )
    assert one == other


def test_results_are_of_one_submitter_unless_the_pool_shares_them() -> None:
    assert key_of("ann") != key_of("bob")
    assert len({key_of("ann"), key_of(""), key_of(None)}) == 3


def test_what_a_task_receives_is_in_the_key_each_part_for_itself() -> None:
    received = [
        Received(),
        Received(results=(("build", "d1"),)),
        Received(results=(("build", "d2"),)),
        Received(results=(("test", "d1"),)),
        Received(results=(("build", "d1"), ("test", "d1"))),
        Received(inputs=("d1",)),
        Received(secrets=("d1",)),
        Received(inputs=("d1",), secrets=("d1",)),
    ]
    assert len({key_of(received=one) for one in received}) == len(received)
    assert {received_key(key_of(), one) for one in received} == {key_of(received=one) for one in received}


def test_the_slices_of_one_task_have_keys_of_their_own() -> None:
    task = validate(
        {
            "tasks": {
                "a": {
                    "task": {
                        "payload": {"command": ["make"]},
                        "slices": [{"dimensions": {"gpu": "h100"}}, {"dimensions": {"gpu": "a100"}}],
                    }
                }
            }
        },
        now=NOW,
    ).graph
    assert task is not None
    first, second = (key(as_text(one), "ann", Received(), {}) for one in task.tasks["a"].slices)
    assert first != second


def test_a_task_id_stands_for_the_task_that_really_ran() -> None:
    one, other = (text(payload={"command": ["get", id]}) for id in (ONE, OTHER))
    assert one.named == (ONE,)
    assert key(one, "ann", Received(), {}) != key(other, "ann", Received(), {})
    assert key(other, "ann", Received(), {OTHER: ONE}) == key(one, "ann", Received(), {})
    assert key(one, "ann", Received(), {ONE: THIRD}) == key(other, "ann", Received(), {OTHER: THIRD})


def test_ids_are_found_inside_other_text_and_only_whole_ones() -> None:
    command = [f"https://files/{ONE}/log?x={OTHER}", f"a{THIRD}", f"{THIRD}0", NO_ID, f"g{THIRD}-1"]
    assert text(payload={"command": command}).named == (ONE, OTHER, THIRD)


def test_a_task_that_names_many_ids_is_as_large_as_any_other() -> None:
    ids = [f"{number:015x}8" for number in range(2 * IDS_MAX)]
    found = text(payload={"command": ids})
    assert len(found.named) == 2 * IDS_MAX
    assert key(found, "ann", Received(), dict.fromkeys(ids, ONE)) != key(found, "ann", Received(), {})


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.tuples(PLAIN, st.text(), st.text(), PLAIN), st.tuples(PLAIN, st.text(), st.text(), PLAIN))
def test_two_keys_are_equal_exactly_if_all_their_parts_are(
    one: tuple[Any, str, str, Any], other: tuple[Any, str, str, Any]
) -> None:
    def made(parts: tuple[Any, str, str, Any]) -> str:
        work, pool, submitter, digest = parts
        return key(SliceText(pool, repr(work), ()), submitter, Received(results=(("a", repr(digest)),)), {})

    assert (made(one) == made(other)) == (repr(one) == repr(other))


# What becomes of the second.


def result(task: str, ago_ms: int = 0, state: State = S.SUCCESSFUL, reused: bool = False, digest: str = "d1") -> Result:
    return Result(TaskId(task), digest, state, Millis(NOW - ago_ms), reused)


@each_row(
    ("one", "good"),
    [
        (result("a", ago_ms=-5), True),
        (result("a"), True),
        (result("a", ago_ms=WINDOW_MS - 1), True),
        (result("a", ago_ms=WINDOW_MS), False),
        (result("a", ago_ms=WINDOW_MS + 1), False),
        (result("a", reused=True), False),
        (result("a", digest="d2"), False),
        *((result("a", state=state), False) for state in State if state is not S.SUCCESSFUL),
    ],
)
def test_a_result_is_reused_when_it_is_equal_successful_original_and_young(one: Result, good: bool) -> None:
    assert reusable([one], "d1", NOW, WINDOW_MS) == (one if good else None)


def test_the_newest_good_result_is_reused() -> None:
    results = [result("a", 9), result("d", 5), result("b", 5), result("c", 7), result("e", 1, S.FAILED)]
    assert reusable(results, "d1", NOW, WINDOW_MS) == result("b", 5)


def test_results_are_reused_for_a_week_unless_it_is_said_otherwise() -> None:
    week_ms = 7 * 24 * 3_600_000
    assert week_ms == REUSE_WINDOW_MS == ReusePolicy().window_ms
    assert reusable([result("a", week_ms - 1)], "d1", NOW) == result("a", week_ms - 1)
    assert reusable([result("a", week_ms)], "d1", NOW) is None


def test_a_window_of_nothing_forbids_reuse() -> None:
    assert reusable([result("a")], "d1", NOW, window_ms=0) is None


def test_nothing_can_be_reused_where_nothing_ended() -> None:
    assert reusable([], "d1", NOW) is None


@each_row(
    ("known", "expected"),
    [
        (KeyState(), RUN),
        (KeyState(leader=7), RUN),  # the task itself
        (KeyState(leader=8), FOLLOW),
        (KeyState(newest=result("a", WINDOW_MS - 1)), REUSE),
        (KeyState(newest=result("a", WINDOW_MS)), RUN),
        (KeyState(8, result("a", WINDOW_MS)), FOLLOW),
        (KeyState(8, result("a", 1)), REUSE),  # the window was made longer while another one runs
    ],
)
def test_a_task_reuses_follows_or_runs(known: KeyState, expected: Course) -> None:
    assert course(known, 7, "d1", NOW, ReusePolicy(WINDOW_MS)) is expected


@each_row(
    ("courses", "first", "serves", "expected"),
    [
        ([RUN], 0, [True], Ruling(0, RUN)),
        ([RUN], 0, [False], None),
        ([REUSE], 0, [False], Ruling(0, REUSE)),  # what is known needs no bot
        ([FOLLOW], 0, [False], Ruling(0, FOLLOW)),
        ([RUN, REUSE], 0, [False, False], Ruling(1, REUSE)),
        ([RUN, REUSE], 0, [True, True], Ruling(0, RUN)),  # the second slice is not current
        ([RUN, RUN], 0, [False, True], Ruling(1, RUN)),
        ([RUN, RUN], 1, [True, False, True], Ruling(2, RUN)),
        ([RUN, RUN], 0, [False, False], None),
    ],
)
def test_each_slice_is_looked_up_before_it_is_asked_whether_a_bot_could_serve_it(
    courses: list[Course], first: int, serves: list[bool], expected: Ruling | None
) -> None:
    assert choose(courses, first, serves) == expected
