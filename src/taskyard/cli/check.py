"""One finding about an installation: what was looked at, how it stands, and what to do about it."""

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARNING: Final = "warning"
FAULT: Final = "fault"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    verdict: str  # ok, warning, fault
    text: str
    fix: str = ""  # what to do, if it is not ok


def ok(name: str, text: str) -> Check:
    """Say that something is well."""
    return Check(name, OK, text)


def warning(name: str, text: str, fix: str) -> Check:
    """Say that something works, and not as well as it could."""
    return Check(name, WARNING, text, fix)


def fault(name: str, text: str, fix: str) -> Check:
    """Say that something does not work."""
    return Check(name, FAULT, text, fix)
