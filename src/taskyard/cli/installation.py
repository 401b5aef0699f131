"""Examines this installation for `taskyard doctor`: whatever can be wrong is looked at, tried, and told in a line.

A line is ok, a warning or a fault, and says what to do. Nothing is changed; what is tried out leaves nothing behind.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from taskyard.cli import layout, profile, reports, text
from taskyard.cli.check import FAULT, WARNING, Check
from taskyard.cli.exits import Exit
from taskyard.cli.session import Server

Checker = Callable[[], Iterable[Check]]


def examine(data: Path | None, server: Server, output: str) -> Exit:
    """Examine everything, tell it, and say by the exit code whether there is a fault."""
    found = list(_checks(data or profile.data_folder(), server))
    has_arrived = reports.delivered(lambda: _give(found, output))
    reports.talk(_summary(found))
    return Exit.ERROR if any(one.verdict == FAULT for one in found) or not has_arrived else Exit.OK


def _checks(data: Path, server: Server) -> Iterator[Check]:
    # Only who examines an installation pays for what that needs.
    from taskyard.cli import checks_bot, checks_disk, checks_here, checks_server  # noqa: PLC0415

    checkers: Sequence[tuple[str, Checker]] = (
        ("python", checks_here.python),
        ("packages", checks_here.packages),
        ("locale", checks_here.locale_is_utf8),
        ("sqlite", lambda: checks_disk.sqlite(data)),
        ("disk", lambda: checks_disk.disk(data)),
        ("files", lambda: checks_disk.files(data)),
        ("postgresql", checks_server.postgresql),
        ("server", lambda: checks_server.server(server)),
        ("bot", checks_bot.features),
    )
    for name, check in checkers:
        yield from _carefully(name, check)


def _carefully(name: str, check: Checker) -> Iterator[Check]:
    """Tell what a check finds; one that breaks down is a finding too, and keeps no other from being made."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - whatever an odd machine does, the others are still looked at
        yield Check(name, FAULT, f"cannot be examined: {type(error).__name__}: {error}", "mend what the message names")


def _give(found: Sequence[Check], output: str) -> None:
    rows = [(one.verdict, one.name, text.harmless(_said(one))) for one in found]
    lines: dict[str, Callable[[], list[str]]] = {
        "table": lambda: layout.table(rows, sys.stdout),
        "json": lambda: [json.dumps([asdict(one) for one in found], indent=2)],
        "jsonl": lambda: [json.dumps(asdict(one)) for one in found],
        "name": lambda: [one.name for one in found if one.verdict == FAULT],
    }
    for line in lines[output]():
        reports.answer(line)


def _said(one: Check) -> str:
    return f"{one.text}; {one.fix}" if one.fix else one.text


def _summary(found: Sequence[Check]) -> str:
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in _NOUNS}
    told = [text.many(count, _NOUNS[verdict]) for verdict, count in counts.items() if count]
    return ", ".join(told) or "all is well"


_NOUNS: Final = {FAULT: "fault", WARNING: "warning"}
