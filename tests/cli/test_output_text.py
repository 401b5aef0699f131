"""Hostile text becomes harmless before it reaches a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.cli.output import LINE_LENGTH_MAX, TAIL_LINES_MAX, format_duration, harmless, last_lines
from tests.each_row import each_row


@each_row(
    ("hostile", "shown"),
    [
        ("plain", "plain"),
        ("ünïcode ✓ 漢字", "ünïcode ✓ 漢字"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hcleared", "cleared"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;cm0gLXJm\x1b\\after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\after", "after"),
        ("\x1b_application\x1b\\after", "after"),
        ("\x1bcreset", "reset"),
        ("\x1b(0charset", "charset"),
        ("\x9b31mred", "red"),
        ("\x9dtitle\x9cafter", "after"),
        ("\x1b]0;without an end", ""),
        ("\x1b[31", ""),
        ("\x1b", ""),
        ("bell\x07 back\x08 nul\x00 del\x7f", "bell\\x07 back\\x08 nul\\x00 del\\x7f"),
        ("turned \u202etxt.exe", "turned \\u202etxt.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("new\nline\rreturn\u2028separator", "new\\nline\\rreturn\\u2028separator"),
        ("a\tb", "a    b"),
        ("\ud800", "\\ud800"),
        ("[bold]markup[/bold] :smile:", "[bold]markup[/bold] :smile:"),
    ],
)
def test_harmless_drops_escapes_and_spells_the_hidden(hostile: str, shown: str) -> None:
    assert harmless(hostile) == shown


@given(st.text(st.sampled_from("\x1b[]\\;?0123mHJ()\x07\x9b\x9d\x9c\r\n\tPX^_ab\u202e\x00")))
def test_harmless_text_is_printable_and_stays_as_it_is(hostile: str) -> None:
    shown = harmless(hostile)
    assert shown.isprintable()
    assert harmless(shown) == shown


@pytest.mark.parametrize(
    ("tail", "lines"),
    [
        ("", []),
        ("\n\n  \n", []),
        ("one\ntwo\n", ["one", "two"]),
        ("one\r\ntwo\r\n", ["one", "two"]),
        (" 10%\r 50%\r100%\ndone", ["100%", "done"]),
        ("\x1b[1mbold\x1b[0m\n\x1b]0;hidden\nshown\x07", ["bold", "shown\\x07"]),
        ("x" * (LINE_LENGTH_MAX + 5), ["x" * LINE_LENGTH_MAX + " ..."]),
        ("".join(f"{number}\n" for number in range(50)), [str(number) for number in range(40, 50)]),
    ],
)
def test_the_last_lines_are_those_a_terminal_would_have_kept(tail: str, lines: list[str]) -> None:
    assert last_lines(tail) == lines
    assert len(lines) <= TAIL_LINES_MAX


@pytest.mark.parametrize(
    ("elapsed_ms", "spelled"),
    [(0, "0.0 s"), (1_240, "1.2 s"), (59_900, "59.9 s"), (61_000, "1 min 1 s"), (3_720_000, "1 h 2 min")],
)
def test_durations_are_spelled_for_people(elapsed_ms: int, spelled: str) -> None:
    assert format_duration(elapsed_ms) == spelled
