"""What an attempt printed is sent once, in order, wherever it waits meanwhile."""

from pathlib import Path

from taskyard.bot.spool import MEMORY_MAX, Spool
from taskyard.wire.bots import OUTPUT_MAX, PIECE_MAX


def sent(spool: Spool, step: int) -> bytes:
    whole = b""
    while spool.pending:
        piece = spool.piece(spool.kept, step)
        whole += piece
        spool.keep(spool.kept + len(piece))
    return whole


def test_little_output_stays_in_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    spool.add(b"one ")
    spool.add(b"two")
    assert (sent(spool, 5), list(tmp_path.iterdir())) == (b"one two", [])


def test_much_output_waits_in_a_file_that_goes_when_it_is_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    whole = bytes(range(256)) * (MEMORY_MAX // 128)
    for start in range(0, len(whole), 100_000):
        spool.add(whole[start : start + 100_000])
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    assert len(spool.piece(0, 10**9)) == PIECE_MAX
    assert sent(spool, 10**9) == whole
    assert list(tmp_path.iterdir()) == []


def test_printing_goes_on_while_it_is_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    spool.add(b"a" * (MEMORY_MAX + 1))
    spool.keep(10)
    spool.add(b"b" * 5)
    assert sent(spool, 10**9) == b"a" * (MEMORY_MAX - 9) + b"b" * 5


def test_what_is_beyond_the_limit_is_dropped_and_said(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", output_max=5)
    spool.add(b"1234")
    spool.add(b"5678")
    assert (sent(spool, 100), spool.truncated) == (b"12345", True)


def test_a_server_that_has_more_than_was_thought_is_believed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    spool.add(b"123456")
    spool.keep(4)
    spool.keep(2)
    assert sent(spool, 100) == b"56"


def test_a_disk_that_is_full_costs_what_comes_after_and_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to("/dev/full")
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    first = b"a" * (MEMORY_MAX + 1)
    spool.add(first)
    spool.add(b"more")
    assert (spool.truncated, "No space left" in spool.trouble) == (True, True)
    assert sent(spool, 10**9) == first
    spool.close()
