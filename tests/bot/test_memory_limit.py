"""How much memory an attempt may use: a limit for its group where the kernel has that, else for each of its processes.

The machine that runs these tests may have no cgroup v2 for memory, so the files of a group are made by the test.
"""

import os
import subprocess
import sys
from pathlib import Path

from taskyard.bot.memory_limit import MIB, MemoryLimit, MemoryLimits, find_parent

ALLOCATE = "import sys; print(len(bytearray(int(sys.argv[1]) << 20)))"


def group(folder: Path, controllers: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.subtree_control").write_text(controllers)
    return folder


def ended(limit: MemoryLimit, mb: int) -> int:
    """Run a program under a limit that wants so much memory; return its exit code."""
    command = [sys.executable, "-c", ALLOCATE, str(mb)]
    return subprocess.run(
        command,
        preexec_fn=limit.enter,
        check=False,
        timeout=60,
        capture_output=True,
    ).returncode


def test_a_process_that_wants_more_than_its_limit_gets_an_error() -> None:
    assert ended(MemoryLimit(128), 16) == 0
    assert ended(MemoryLimit(128), 256) == 1


def test_a_group_of_its_own_is_made_where_groups_may_limit_memory(tmp_path: Path) -> None:
    parent = group(tmp_path / "bot.service", "cpu memory")
    assert find_parent(tmp_path, "/bot.service") == parent
    limit = MemoryLimits(parent).create("run-7", 64)
    assert limit.folder is not None
    assert limit.folder.parent == parent
    assert (limit.folder / "memory.max").read_text() == str(64 * MIB)
    assert not limit.was_hit()
    (limit.folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert limit.was_hit()


def test_a_process_enters_its_group_before_it_becomes_the_program(tmp_path: Path) -> None:
    limit = MemoryLimits(group(tmp_path / "bot", "memory")).create("run-1", 64)
    assert limit.folder is not None
    assert ended(limit, 1) == 0
    assert (limit.folder / "cgroup.procs").read_text() == "0"


def test_the_group_around_the_own_one_is_taken_where_processes_are_in_the_own_one(tmp_path: Path) -> None:
    outer = group(tmp_path / "bot.service", "memory")
    group(outer / "main", "")
    (outer / "main" / "cgroup.subtree_control").chmod(0o444)
    os.remove(outer / "main" / "cgroup.subtree_control")
    assert find_parent(tmp_path, "/bot.service/main") == outer


def test_without_such_a_group_the_limit_holds_for_each_process(tmp_path: Path) -> None:
    assert find_parent(tmp_path, "/nowhere") is None
    limit = MemoryLimits(None).create("run-1", 64)
    assert (limit.folder, limit.was_hit()) == (None, False)
    limit.close()


def test_groups_of_runners_that_are_gone_are_removed(tmp_path: Path) -> None:
    parent = group(tmp_path / "bot", "memory")
    mine, gone = parent / f"taskyard-{os.getpid()}-1", parent / "taskyard-999999999-1"
    for folder in (mine, gone):
        folder.mkdir()
    MemoryLimits(parent)
    assert (mine.exists(), gone.exists()) == (True, False)
