"""What is started for a payload: the program, the folder, the surroundings, and for how long.

It reads payloads that were found good and had their `$subs` replaced. It starts nothing.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from taskyard.core.graph import GRACE_MS, TIMEOUT_MS, Payload, span_ms

#: A script stops at its first failing line; what goes on after a failure is what nobody looks at.
SHELL = ("/bin/sh", "-e")


@dataclass(frozen=True, slots=True)
class Invocation:
    """One program to start; with a script, its text is the program's last argument, as a file."""

    argv: tuple[str, ...]
    script: str | None
    env: Mapping[str, str]
    folder: Path | None  # None: a fresh one
    timeout_ms: int
    grace_ms: int


def invocation(payload: Payload) -> Invocation:
    """Say what to start for a `command` or a `script`."""
    fields = cast("Mapping[str, str]", payload)
    script = fields.get("script")
    return Invocation(
        argv=SHELL if script is not None else tuple(cast("list[str]", payload["command"])),
        script=script,
        env=os.environ | cast("dict[str, str]", payload.get("env", {})),
        folder=Path(fields["cwd"]) if "cwd" in payload else None,
        timeout_ms=_span_ms(fields.get("timeout"), TIMEOUT_MS),
        grace_ms=_span_ms(fields.get("grace"), GRACE_MS),
    )


def _span_ms(span: str | None, otherwise_ms: int) -> int:
    if span is None:
        return otherwise_ms
    ms = span_ms(span)
    assert ms is not None, f"validation let {span!r} pass"
    return ms
