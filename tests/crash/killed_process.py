"""Processes that run the scenario on a database with a journal, and die at a failpoint.

    python -m tests.crash.killed_process

For every input line of URL, JOURNAL and FAILPOINT, separated by tabs, it forks a process that dies at that failpoint,
and prints the exit code. The forking process has imported everything: imports take longer than the scenario.
"""

import os
import sys
from pathlib import Path

import alembic.command  # noqa: F401 - opening a database needs it

import taskyard.store.migrate
import taskyard.store.postgres
import taskyard.store.sqlite  # noqa: F401 - before the fork
from taskyard.engine.engine import Engine
from taskyard.engine.failpoints import arm
from tests.crash.scenario import PAGE, ScenarioClock, ScenarioRunner, run_scenario
from tests.crash.small_pages import shrink


def run_process(url: str, journal: str, failpoint: str) -> None:
    """Run the scenario to its end, or until the failpoint kills the process."""
    arm(failpoint)
    clock = ScenarioClock()
    engine = Engine.open(url, clock)
    engine.writer_thread.start()  # the scenario runs background work, so that each kill is at the same place
    run_scenario(ScenarioRunner(engine, clock, Path(journal)))
    engine.stop()


def main() -> None:
    """Fork one process for each line of input."""
    shrink(PAGE)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            run_process(*line.rstrip("\n").split("\t"))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
