"""The report of every benchmark: its cases, a table for people, one JSON line for programs."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Peer:
    """The figure of another system for the same work, from the same run."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Case:
    """One figure, and what it has to reach."""

    case: str
    value: float
    unit: str
    better: Better
    must: float | None = None
    goal: float | None = None
    floor: float | None = None
    peer: Peer | None = None

    @property
    def ok(self) -> bool:
        """Whether the must is met; a case without one is always ok."""
        return self.must is None or self._reaches(self.must)

    @property
    def mark(self) -> str:
        if not self.ok:
            return "MISSED"
        return "goal" if self.goal is not None and self._reaches(self.goal) else "ok"

    def _reaches(self, bar: float) -> bool:
        return self.value >= bar if self.better == "higher" else self.value <= bar


def main(name: str, measure: Callable[[bool], Sequence[Case]]) -> int:
    """Run `measure(quick)` and print its cases; the exit code says whether every must was met, if asked."""
    options = _options(name)
    cases = measure(options.quick)
    _table(name, cases)
    if options.json:
        rows = [asdict(case) | {"ok": case.ok} for case in cases]
        print(json.dumps({"benchmark": name, "cases": rows}), flush=True)
    return int(options.check and not all(case.ok for case in cases))


def machine() -> str:
    """Name the machine in one line."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    return f"{os.cpu_count()} x {model}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def _options(name: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    parser.add_argument("--check", action="store_true", help="exit 1 when a must is missed")
    parser.add_argument("--quick", action="store_true", help="a small version that shows that it still works")
    return parser.parse_args()


def _table(name: str, cases: Sequence[Case]) -> None:
    print(f"{name} on {machine()}")
    width = max((len(case.case) for case in cases), default=4)
    print(f"  {'case':<{width}}  {'value':>12} {'unit':<10} {'must':>10} {'goal':>10} {'floor':>10}  {'':<7} peer")
    for case in cases:
        peer = f"{case.peer.name} {_number(case.peer.value)}" if case.peer else ""
        print(
            f"  {case.case:<{width}}  {_number(case.value):>12} {case.unit:<10} {_number(case.must):>10}"
            f" {_number(case.goal):>10} {_number(case.floor):>10}  {case.mark:<7} {peer}".rstrip()
        )
    sys.stdout.flush()


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readlines()
    except OSError:
        return []
