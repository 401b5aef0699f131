"""The critical path in `show`."""

from taskyard.cli.commands import show
from taskyard.wire.api import CriticalPath, PathTask

AT = 1_767_225_600_000


def settled(*tasks: PathTask, total: int = 4_000, waiting: int | None = 1_000) -> CriticalPath:
    return CriticalPath("g", True, AT, total, list(tasks), True, AT, total - (waiting or 0), waiting)


def moving(*tasks: PathTask, end: int | None = AT + 90_000, stuck: int = 0) -> CriticalPath:
    return CriticalPath("g", False, AT, 0, list(tasks), True, expected_end_ms=end, left=4, known=3, stuck=stuck)


def test_the_view_of_a_settled_graph_has_its_duration_and_its_waits() -> None:
    seen = settled(
        PathTask("1", "a\x1b[31m", "successful", ran_ms=1_000, waited_ms=0),
        PathTask("2", "b", "failed", ran_ms=2_000, waited_ms=1_000),
    )
    assert show._path_fields(seen) == [("took", "4.0 s, 25 % of it waiting")]
    assert list(show._path_lines(seen)) == [
        "",
        "  CRITICAL PATH  STATE       WAITED  RAN",
        "  a              successful  0.0 s   1.0 s",
        "  b              failed      1.0 s   2.0 s",
    ]


def test_the_view_of_an_active_graph_has_its_expected_end_and_how_sure_that_is() -> None:
    seen = moving(
        PathTask("1", "a", "running", ran_ms=500, expected_ms=60_500, remaining_ms=60_000),
        PathTask("2", "b", "unscheduled", expected_ms=30_000, remaining_ms=30_000),
        PathTask("3", "c", "unscheduled"),
    )
    past = "durations known for 3 of 4 tasks left"
    assert show._path_fields(seen) == [("expected", f"2026-01-01 00:01:30Z at the earliest, in 1 min 30 s; {past}")]
    assert list(show._path_lines(seen))[1:] == [
        "  CRITICAL PATH  STATE        RAN    EXPECTED   LEFT",
        "  a              running      0.5 s  1 min 0 s  1 min 0 s",
        "  b              unscheduled  -      30.0 s     30.0 s",
        "  c              unscheduled  -      -          -",
    ]
    assert show._path_fields(moving(PathTask("1", "a", "waiting"), end=None, stuck=2)) == [
        ("expected", f"unknown; {past}; 2 blocked")
    ]


def test_a_long_path_shows_its_end_or_its_beginning() -> None:
    many = [PathTask(str(number), f"t{number}", "successful") for number in range(20)]
    past, future = list(show._path_lines(settled(*many))), list(show._path_lines(moving(*many)))
    assert ("t19" in past[-2], past[-1]) == (True, "  and 8 before these")
    assert ("t0" in future[2], future[-1]) == (True, "  and 8 after these")


def test_a_path_of_one_or_of_none_is_no_table() -> None:
    assert (show._path_fields(settled()), list(show._path_lines(settled()))) == ([], [])
    assert list(show._path_lines(moving(PathTask("1", "a", "running")))) == []
    assert show._path_fields(moving()) == []
