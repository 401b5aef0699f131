"""Which GPUs attempts get: each those that no other one has."""

from taskyard.bot import gpus
from taskyard.bot.gpus import GpuPool


def test_each_attempt_gets_gpus_that_no_other_one_has() -> None:
    pool = GpuPool()
    first, second = pool.take(2), pool.take(1)
    assert (first, second) == (("0", "1"), ("2",))
    pool.give_back(first or ())
    assert pool.take(3) == ("0", "1", "3")


def test_a_bot_hands_out_only_the_gpus_that_it_may_use_itself() -> None:
    pool = GpuPool(["2", "GPU-5f3a"])
    assert pool.take(1) == ("2",)
    assert pool.take(2) is None
    assert pool.take(1) == ("GPU-5f3a",)
    assert pool.take(0) == ()
    assert (pool.ever_has(2), pool.ever_has(3)) == (True, False)


def test_the_environment_names_the_gpus_of_a_bot() -> None:
    assert gpus.names({}) is None
    assert gpus.names({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert gpus.names({"CUDA_VISIBLE_DEVICES": "1, 3"}) == ["1", "3"]
    assert gpus.names({"CUDA_VISIBLE_DEVICES": "0,-1,1"}) == ["0"]
