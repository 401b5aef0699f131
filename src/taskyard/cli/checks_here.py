"""Checks of the Python that Taskyard runs on, of the packages that it needs, and of how text is written here."""

import locale
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from taskyard.cli.check import Check, fault, ok, warning

#: A requirement as packages spell it: the name, the versions, and when it applies.
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?")
_BOUND: Final = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([0-9][0-9.]*)")
_PLATFORM: Final = re.compile(r"""sys_platform\s*(==|!=)\s*["'](\w+)["']""")
_MEND: Final = "install Taskyard again, into an environment of its own"


def python() -> Iterator[Check]:
    """See whether this Python is new enough."""
    needs = metadata.metadata("taskyard")["Requires-Python"] or ">=3.11"
    here = ".".join(map(str, sys.version_info[:3]))
    if fits(here, needs):
        yield ok("python", f"Python {here}, {needs} is needed")
    else:
        yield fault("python", f"Python {here} is here, and {needs} is needed", "install a newer Python")


def packages() -> Iterator[Check]:
    """Compare every package that Taskyard needs with what is installed."""
    needed = list(_needed())
    wrong = [said for name, versions in needed if (said := _wrong(name, versions))]
    for said in wrong:
        yield fault("packages", said, _MEND)
    if not wrong:
        yield ok("packages", f"Taskyard {metadata.version('taskyard')}, and all {len(needed)} packages that it needs")


def locale_is_utf8() -> Iterator[Check]:
    """See whether names of files and what is printed can have any character."""
    found = {"files": sys.getfilesystemencoding(), "text": locale.getpreferredencoding(False)}
    odd = [f"{what} in {encoding}" for what, encoding in found.items() if not _is_utf8(encoding)]
    if odd:
        yield warning("locale", f"this shell writes {' and '.join(odd)}, not UTF-8", "set LANG=C.UTF-8")
    else:
        yield ok("locale", "UTF-8")


def fits(version: str, versions: str) -> bool:
    """Tell whether a version is among those that are asked for."""
    return all(_is_met(_release(version), operator, bound) for operator, bound in _BOUND.findall(versions))


def _needed() -> Iterator[tuple[str, str]]:
    for line in metadata.requires("taskyard") or ():
        found = _REQUIREMENT.fullmatch(line.strip())
        if found and _applies(found[3] or ""):
            yield found[1], found[2].strip()


def _applies(condition: str) -> bool:
    """Judge when a requirement is one: extras are nobody's here, and platforms are compared; all else is so."""
    if "extra" in condition:
        return False
    platform = _PLATFORM.search(condition)
    return platform is None or (sys.platform == platform[2]) is (platform[1] == "==")


def _wrong(name: str, versions: str) -> str | None:
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} {versions} is not installed"
    return None if fits(installed, versions) else f"{name} {installed} is installed, and {versions} is needed"


def _release(version: str) -> tuple[int, ...]:
    """Read the numbers of a version; what stands behind them does not matter here."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _is_met(have: tuple[int, ...], operator: str, bound: str) -> bool:
    wanted = _release(bound)
    width = max(len(have), len(wanted))
    one, other = (part + (0,) * (width - len(part)) for part in (have, wanted))
    match operator:
        case ">=":
            return one >= other
        case "<=":
            return one <= other
        case ">":
            return one > other
        case "<":
            return one < other
        case "!=":
            return one != other
        case "==":
            return one == other
        case _:  # ~=: at least this, and the same but for the last number
            return one >= other and have[: len(wanted) - 1] == wanted[:-1]


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("-", "") == "utf8"
