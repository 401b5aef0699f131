"""Real bots run what takes more than a slot: within their totals, each with GPUs of its own, and with enough memory."""

from functools import partial
from pathlib import Path

import pytest

from tests.cli.waiting import until
from tests.e2e.cluster import Bot, Cluster
from tests.e2e.documents import call, gated, only, script

SEE = 'printf \'"%s"\' "$CUDA_VISIBLE_DEVICES" > "$TASKYARD_RESULT"'


@pytest.fixture(scope="module")
def machine(shared_cluster: Cluster) -> Bot:
    """A bot with three GPUs and four slots."""
    return shared_cluster.bot(
        "machine", "--dimension", "gpus=3", "--dimension", "cores=4", slots=4, env={"CUDA_VISIBLE_DEVICES": "4,5,6"}
    )


def on_machine(**takes: object) -> dict[str, object]:
    return {**only("machine"), **takes}


@pytest.mark.usefixtures("machine")
def test_attempts_have_what_they_take_and_no_more(shared_cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    graph = shared_cluster.submit(
        {f"gpu{number}": gated(gate, before=SEE, task=on_machine(gpus=1)) for number in range(3)}
        | {"late": script(SEE, task=on_machine(gpus=2)), "whole": script("true", task=on_machine(slots=4))}
    )
    for number in range(3):
        graph.until(f"gpu{number}", "running")
    assert {graph.states()[label] for label in ("late", "whole")} == {"waiting"}
    gate.touch()
    graph.finished()
    assert {graph.task(f"gpu{number}").result for number in range(3)} == {"4", "5", "6"}
    assert graph.task("late").result in {"4,5", "5,6", "4,6"}


def test_no_two_attempts_have_one_gpu_also_after_the_bot_was_killed(shared_cluster: Cluster, tmp_path: Path) -> None:
    gate, locks = tmp_path / "gate", tmp_path / "locks"
    locks.mkdir()
    # The lock is held by whatever is left of an attempt.
    alone = f'exec 9> "{locks}/$CUDA_VISIBLE_DEVICES"; flock -n 9 || exit 9'
    start = partial(shared_cluster.bot, "gpus", "--dimension", "gpus=3", slots=8, env={"CUDA_VISIBLE_DEVICES": "0,1,2"})
    bot = start()
    tasks = {f"t{number}": gated(gate, before=alone, task={**only("gpus"), "gpus": 1}) for number in range(6)}
    graph = shared_cluster.submit(tasks)
    until(lambda: len(list(locks.iterdir())) == 3, "three attempts have begun")
    assert sorted(graph.states().values()) == ["running"] * 3 + ["waiting"] * 3
    bot.kill(also_runner=True)
    start()
    until(lambda: sum(len(graph.attempts(label)) for label in tasks) >= 6, "three attempts have begun again")
    gate.touch()
    graph.finished()
    assert {path.name for path in locks.iterdir()} == {"0", "1", "2"}


@pytest.mark.usefixtures("machine")
def test_an_attempt_that_uses_more_memory_than_it_takes_fails(shared_cluster: Cluster) -> None:
    small = {"memory": "200MiB"}
    program = "python3 -c 'bytearray(%d << 20)'"
    graph = shared_cluster.submit(
        {
            "fits": script(program % 20, task=on_machine(**small)),
            "greedy": script(program % 400, task=on_machine(**small)),
            "call": call("allocate", 20, task=on_machine(**small)),
            "greedy call": call("allocate", 400, task=on_machine(**small)),
            "unlimited": script(program % 400, task=on_machine()),
        }
    )
    graph.settled()
    assert graph.states() == {
        "fits": "successful", "greedy": "failed", "call": "successful", "greedy call": "failed",
        "unlimited": "successful",
    }  # fmt: skip
    assert b"MemoryError" in graph.output("greedy")


@pytest.mark.usefixtures("machine")
def test_a_call_is_told_what_it_takes(shared_cluster: Cluster) -> None:
    graph = shared_cluster.submit(
        {"call": call("environment", ["TASKYARD_CPUS", "CUDA_VISIBLE_DEVICES"], task=on_machine(cpus=1.5, gpus=1))}
    )
    graph.finished()
    assert graph.task("call").result == ["1.5", "4"]
    until(lambda: shared_cluster.client.bot("machine").busy == 0, "nothing is left in hand")
