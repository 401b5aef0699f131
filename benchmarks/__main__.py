"""Run every benchmark, one after the other, and keep what they print in `benchmarks/results/`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "celery_app", "cluster", "report", "stores"}


def names() -> list[str]:
    """The names of the benchmarks: every module here that is not a helper."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)


def main() -> int:
    """Run them all with the caller's options; return 1 if one of them did."""
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    worst = 0
    for name in names():
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], capture_output=True, text=True, check=False
        )
        print(done.stdout, done.stderr, sep="", end="", flush=True)
        if "--quick" not in sys.argv:
            (results / f"{name}.txt").write_text(done.stdout, encoding="utf-8")
        worst = max(worst, done.returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
