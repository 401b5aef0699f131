"""How attempts end, and what they print: each end has its own name, and every byte arrives once."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

from tests.bot.runner_process import sleep_until
from tests.cli.waiting import DEADLINE_SECONDS, read_until
from tests.e2e.cluster import Cluster
from tests.e2e.documents import gated, node, only, script


def test_an_exit_code_a_signal_a_time_out_and_silence_are_four_ends(shared_cluster: Cluster) -> None:
    noisy = "while :; do echo still here; sleep 0.1; done"
    graph = shared_cluster.submit(
        {
            "code": script("exit 3"),
            "signal": script("kill -SEGV $$"),
            "time-out": node({"script": noisy, "timeout": "1s", "grace": "0s"}),
            "silence": node({"script": "echo first; sleep 600", "io_timeout": "1s", "grace": "0s"}),
            "raised": node({"python": "operator:truediv", "args": [1, 0]}),
        }
    )
    graph.settled()
    ends = {label: graph.attempts(label)[0] for label in graph.names}
    assert {label: (one.signal, one.reason) for label, one in ends.items()} == {
        "code": ("fail", "exit_code"),
        "signal": ("fail", "signaled"),
        "time-out": ("fail", "timed_out"),
        "silence": ("fail", "silent"),
        "raised": ("fail", "exit_code"),
    }
    assert (ends["code"].exit_code, ends["signal"].exit_code) == (3, -11)
    assert {label: graph.task(label).reason for label in ends} == {label: one.reason for label, one in ends.items()}
    assert graph.output("silence") == b"first\n"
    assert graph.output("time-out").startswith(b"still here\nstill here\n")
    assert b"ZeroDivisionError" in graph.output("raised")


def test_a_deadline_is_an_error_and_never_a_failure_however_long_the_bot_was_idle(own_cluster: Cluster) -> None:
    own_cluster.bot("main", slots=4)
    sleep_until(time.monotonic() + 4)  # its poll has waited for longer than the tasks may take
    late = {"deadline": "3s", "retries": 3}
    graph = own_cluster.submit(
        {
            "program": node({"script": "sleep 600", "grace": "0s"}, task=late, reruns=3),
            "call": node({"python": "time:sleep", "args": [600]}, task=late, reruns=3),
            "in-time": node({"command": ["true"]}, task={"deadline": "10m"}, reruns=3),
        }
    )
    graph.settled()
    tasks = {label: graph.task(label) for label in graph.names}
    assert {label: (one.state, one.reason) for label, one in tasks.items()} == {
        "program": ("error", "deadline"),
        "call": ("error", "deadline"),
        "in-time": ("successful", "done"),
    }
    # A slow machine may not begin them at all.
    assert all(one.signal == "deadline" for label in ("program", "call") for one in graph.attempts(label))
    assert max(one.attempt for one in tasks.values()) == 1


def test_the_statistics_of_an_attempt_are_stored(shared_cluster: Cluster) -> None:
    graph = shared_cluster.submit(
        {"busy": script("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $i", task=only("main"))}
    )
    graph.finished()
    (attempt,) = graph.attempts("busy")
    assert attempt.stats is not None
    stats = attempt.stats
    phases = (stats.queued_ms, stats.prepared_ms, stats.ran_ms, stats.uploaded_ms)
    assert None not in (*phases, stats.cpu_s, stats.memory_bytes)
    assert sum(one or 0 for one in phases) <= (attempt.ended_ms or 0) - graph.task("busy").created_ms + len(phases)
    assert (attempt.output_bytes, attempt.truncated, attempt.bot) == (6, False, "main")
    assert (stats.cpu_s or 0) > 0


def test_output_of_many_pieces_arrives_whole_and_by_range(shared_cluster: Cluster) -> None:
    graph = shared_cluster.submit({"loud": script("seq 1 400000")})
    graph.finished()
    printed = b"".join(b"%d\n" % number for number in range(1, 400_001))
    whole = graph.output("loud")
    assert hashlib.sha256(whole).digest() == hashlib.sha256(printed).digest()
    assert graph.attempts("loud")[0].output_bytes == len(printed)
    for start, end in ((0, 10), (262_140, 262_150), (1_000_000, 2_000_000), (len(printed) - 7, len(printed))):
        assert graph.output("loud", start=start, end=end) == printed[start:end]


def test_logs_are_followed_as_they_are_printed(shared_cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    graph = shared_cluster.submit({"talk": gated(gate, "echo one", "echo two")})
    command = [sys.executable, "-m", "taskyard", "logs", "-f", graph.names["talk"]]
    env = shared_cluster.env() | {"TASKYARD_URL": shared_cluster.url, "TASKYARD_TOKEN": shared_cluster.token}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as logs:
        assert logs.stdout is not None
        try:
            assert read_until(logs.stdout.fileno(), "\n", logs) == "one\n"
            assert graph.task("talk").state == "running"
            gate.touch()
            assert (logs.stdout.read(), logs.wait(DEADLINE_SECONDS)) == (b"two\n", 0)
        finally:
            logs.kill()
