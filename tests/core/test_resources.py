"""What tasks take of a bot: no bot is ever given more than it has, and the large are not starved by the small."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from taskyard.core import resources
from taskyard.core.matching import Turn, canonical, matches
from taskyard.core.resources import NOTHING, ONE_SLOT, Dealt, Reservation, Resources, Room, Waiting
from taskyard.core.states import Millis
from tests.core.graph.documents import faults_of, read_task, task
from tests.each_row import each_row

HALF, WHOLE = Resources(2), Resources(4)
#: What the tasks of each queue take in these tests; of any other queue one slot.
TAKES = {2: HALF, 4: WHOLE, 5: Resources(1, cpus=1_500), 6: Resources(1, memory=600), 7: Resources(1, gpus=1)}
BOT = Resources(4, cpus=3_000, memory=1_000, gpus=2)


def waiting(*queues: int, excluded: Mapping[int, str] | None = None) -> Waiting:
    """Tasks in order, each in the queue that is named; their ids are their places, from 0."""
    turns: list[Turn] = [(100, place, place, (excluded or {}).get(place)) for place in range(len(queues))]
    return Waiting(turns, dict(enumerate(queues)), lambda queue: TAKES.get(queue, ONE_SLOT))


def room(*held: Resources, kept_for: Reservation | None = None) -> Room:
    made = Room(BOT, reservation=kept_for)
    for one in held:
        made.hold(one)
    return made


def dealt(queues: Sequence[int], count: int, of: Room) -> Dealt:
    return waiting(*queues).deal("b1", count, of)


@each_row(
    ("text", "mb"),
    [
        ("1MiB", 1),
        ("512MiB", 512),
        ("8GiB", 8_192),
        ("1.5GiB", 1_536),
        ("1 TiB", 1_048_576),
        ("1GB", 954),  # rounded up
        ("1KiB", 1),
        ("16MB", 16),
        ("8", None),
        ("8G", None),
        ("-8GiB", None),
        ("8gib", None),
        ("1e3MiB", None),
        ("", None),
    ],
)
def test_a_size_is_read_in_whole_mib(text: str, mb: int | None) -> None:
    assert resources.size_mb(text) == mb


taken = st.builds(
    Resources, st.integers(1, 1_000), st.integers(0, 100_000), st.integers(0, 1 << 20), st.integers(0, 64)
)


@given(taken)
def test_what_a_task_takes_is_part_of_its_dimensions(takes: Resources) -> None:
    dimensions = resources.with_taken(canonical({"pool": "lab", "cores": ">=2"}), takes)
    assert resources.taken(dimensions) == takes
    assert canonical(dict(dimensions)) == dimensions
    assert resources.taken(canonical({"pool": "lab", "cores": ">=2"})) == ONE_SLOT


@given(taken, taken)
def test_a_bot_matches_exactly_when_its_totals_suffice(takes: Resources, has: Resources) -> None:
    bot = canonical(
        {
            "pool": "lab",
            "slots": str(has.slots),
            "cores": f"{has.cpus / 1000:f}",
            "memory_mb": str(has.memory),
            "gpus": str(has.gpus),
        }
    )
    assert resources.total(bot) == has
    assert matches(resources.with_taken((("pool", ("lab",)),), takes), bot) is takes.fits(has)


def test_a_bot_that_does_not_say_what_it_has_has_nothing() -> None:
    assert resources.total(canonical({"pool": "lab", "cores": ["many", "2", "8"], "gpus": "-1"})) == Resources(0, 8_000)


def test_a_claim_sums_what_tasks_take() -> None:
    assert dealt([5, 5, 5], 3, room()).given == [0, 1]  # 1.5 + 1.5 of 3 processors
    assert dealt([6, 6], 2, room()).given == [0]  # 600 + 600 of 1000 MiB
    assert dealt([7, 7, 7], 3, room()).given == [0, 1]
    assert dealt([2, 2, 2], 3, room()).given == [0, 1]
    assert dealt([5, 6, 7, 2], 4, room()).given == [0, 1, 2]  # the fourth wants two slots of the one that is left
    assert dealt([4], 1, room(ONE_SLOT)) == Dealt([], [0])


def test_small_tasks_are_handed_ahead_until_another_one_comes_first_or_is_in_hand() -> None:
    assert dealt([0] * 9, 9, room()).given == list(range(9))
    assert dealt([0, 0, 0, 0, 0, 2, 0, 0], 9, room()) == Dealt([0, 1, 2, 3, 4], [5])
    assert dealt([2, 0, 0, 0, 0], 9, room()).given == [0, 1, 2]
    assert dealt([0] * 9, 9, room(HALF)).given == [0, 1]
    assert dealt([4, 0], 9, room(ONE_SLOT)).given == [1]  # there is room for it, and the large one has to wait


def test_what_takes_more_is_never_handed_ahead() -> None:
    in_hand = [ONE_SLOT] * 4
    assert dealt([7], 1, room(*in_hand)) == Dealt([], [0])
    assert dealt([7], 1, room(*in_hand[:3])).given == [0]


def test_a_bot_that_is_kept_free_gets_only_what_fits_beside_the_task() -> None:
    whole = room(ONE_SLOT, kept_for=Reservation(9, 4, WHOLE))
    assert dealt([0, 0, 7], 3, whole) == Dealt([], [2])
    half = room(ONE_SLOT, kept_for=Reservation(9, 2, HALF))
    assert dealt([0, 0], 2, half).given == [0]
    assert dealt([4], 1, room(kept_for=Reservation(0, 4, WHOLE))).given == [0]


def test_a_task_that_this_bot_has_lost_is_left_to_others() -> None:
    both = waiting(2, 2, excluded={0: "b1"})
    assert both.deal("b1", 2, room()).given == [1]
    assert both.deal("b2", 2, room()).given == [0]


def test_only_the_first_of_each_queue_is_said_to_be_blocked() -> None:
    assert dealt([4, 4, 2, 0, 2], 5, room(ONE_SLOT, ONE_SLOT, ONE_SLOT)) == Dealt([3], [0, 2])


holdings = st.lists(st.sampled_from([ONE_SLOT, *TAKES.values()]), max_size=3)


@given(st.lists(st.sampled_from([0, 1, *TAKES]), max_size=12), st.lists(holdings, min_size=1, max_size=3))
def test_no_bot_is_given_more_than_it_has_and_nothing_is_given_twice(
    queues: list[int], held: list[list[Resources]]
) -> None:
    line, given = waiting(*queues), []
    for number, holds in enumerate(held):
        before = sum(holds, NOTHING)
        if not before.fits(BOT):
            continue
        got = line.deal(f"b{number}", 6, room(*holds)).given
        given += got
        takes = [TAKES.get(queues[id], ONE_SLOT) for id in got]
        if any(one != ONE_SLOT for one in (*takes, *holds)):
            after_large = sum(takes, before)
            first = next((place for place, one in enumerate(takes) if one != ONE_SLOT), None)
            assert after_large.fits(BOT) or first is None, (queues, holds, got)
        assert got == sorted(got)
    assert len(given) == len(set(given))


def test_who_has_waited_for_long_may_have_a_bot_kept_free() -> None:
    assert resources.may_reserve(Millis(0), Millis(600_000), 600_000)
    assert not resources.may_reserve(Millis(1), Millis(600_000), 600_000)
    assert not resources.may_reserve(None, Millis(600_000), 600_000)


# The fields of a document.


def test_a_task_names_what_it_takes() -> None:
    read = read_task(task(slots=2, cpus=0.5, memory="1GiB", gpus=1, dimensions={"pool": "lab"})).slices[0]
    assert resources.taken(read.dimensions) == Resources(2, 500, 1_024, 1)
    assert dict(read.dimensions)["pool"] == ("lab",)
    assert read_task(task(slots=1)).slices[0].dimensions == read_task(task()).slices[0].dimensions


def test_each_slice_names_what_it_takes() -> None:
    slices = [{"gpus": 1, "dimensions": {"pool": "lab"}}, {"cpus": 8}]
    read = read_task(task(payload={"command": ["x"]}, slices=slices)).slices
    assert [resources.taken(one.dimensions) for one in read] == [Resources(gpus=1), Resources(cpus=8_000)]


@each_row(
    ("fields", "path", "message"),
    [
        ({"slots": 0}, ".slots", "must be an integer from 1 to 1000000; got 0"),
        ({"slots": "2"}, ".slots", 'must be an integer from 1 to 1000000; got "2"'),
        ({"cpus": 0}, ".cpus", "must be a number from 0.001 to 65536, with at most 3 decimal places; got 0"),
        ({"cpus": 0.0005}, ".cpus", "must be a number from 0.001 to 65536, with at most 3 decimal places; got 0.0005"),
        ({"cpus": 1.0001}, ".cpus", "must be a number from 0.001 to 65536, with at most 3 decimal places; got 1.0001"),
        ({"cpus": True}, ".cpus", "must be a number from 0.001 to 65536, with at most 3 decimal places; got true"),
        ({"memory": 512}, ".memory", "must be a size such as 512MiB, 1.5GiB or 16GB; got 512"),
        ({"memory": "0MiB"}, ".memory", 'must be a size such as 512MiB, 1.5GiB or 16GB; got "0MiB"'),
        ({"gpus": 0}, ".gpus", "must be an integer from 1 to 1024; got 0"),
        ({"gpus": 1, "payload": {"noop": True}}, ".gpus", "means nothing to what the server runs itself; remove it"),
        (
            {"gpus": 1, "payload": {"command": ["x"]}, "slices": [{}]},
            ".gpus",
            "belongs to a slice; move it into the slices",
        ),
    ],
)
def test_bad_demands_are_refused(fields: dict[str, object], path: str, message: str) -> None:
    assert faults_of(task(**fields)) == [(f"tasks.a.task{path}", message)]
