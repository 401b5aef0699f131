"""The table of `taskyard story`."""

from taskyard.cli.commands.show import history_lines
from taskyard.wire.api import StoryItem, StoryView


def test_a_line_has_time_span_state_cause_attempt_and_bot_and_no_text_acts_on_a_terminal() -> None:
    items = [
        StoryItem(1_000, actor="ann", action="submit", about="graph", cause="ann asked: submit the graph"),
        StoryItem(1_000, "release", "unscheduled", "pending", cause="it has no prerequisites"),
        StoryItem(3_500, "claim", "waiting", "running", None, 1, "b\x1b[31m1", cause="bot claimed it", after_ms=2_500),
    ]
    told = list(history_lines(StoryView("7f", "78", "a", 1_000, "running", False, items)))
    assert [line.split() for line in told] == [
        ["TIME", "AFTER", "STATE", "CAUSE", "ATTEMPT", "BOT"],
        ["1970-01-01", "00:00:01Z", "a", "is", "submitted"],
        ["1970-01-01", "00:00:01Z", "+0.0", "s", "ann", "asked:", "submit", "the", "graph"],
        ["1970-01-01", "00:00:01Z", "+0.0", "s", "pending", "it", "has", "no", "prerequisites"],
        ["1970-01-01", "00:00:03Z", "+2.5", "s", "running", "bot", "claimed", "it", "1", "b1"],
        ["there", "are", "more", "events"],
    ]
