"""A story for people: a line for everything that happened, with its time, its cause, its attempt and its bot."""

import sys
from typing import TYPE_CHECKING

from taskyard.cli import forms, layout, standing, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskyard.wire.api import StoryItem, StoryView


def lines(told: "StoryView") -> "Iterator[str]":
    """Tell a story line by line."""
    reused = f", its end {standing.taken_over(told.reused)}" if told.reused else ""
    born = (forms.moment(told.created_ms), "", "", f"{text.harmless(told.label)} is submitted{reused}", "", "")
    head = ("TIME", "AFTER", "STATE", "CAUSE", "ATTEMPT", "BOT")
    yield from layout.table([head, born, *map(_row, told.items)], sys.stdout, titled=True)
    if not told.whole:
        yield "there is more than is told here"


def _row(item: "StoryItem") -> tuple[str, ...]:
    return (
        forms.moment(item.at_ms),
        f"+{text.seconds(item.after_ms)}",
        text.harmless(item.target or ""),
        text.harmless(item.cause),
        str(item.attempt or ""),
        text.harmless(item.bot or ""),
    )
