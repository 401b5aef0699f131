"""Output of an attempt is sent once and in order, whether it waits in memory or on disk."""

from pathlib import Path

import pytest

from taskyard.bot.output_spool import GAP_LINE_MAX, MEMORY_MAX, Spool
from taskyard.wire.bot_protocol import OUTPUT_MAX, PIECE_MAX


def sent(spool: Spool, step: int) -> bytes:
    whole = b""
    while spool.pending:
        piece = spool.piece(spool.acked, step)
        whole += piece
        spool.acknowledge(spool.acked + len(piece))
    return whole


def test_little_output_stays_in_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    spool.add(b"one ")
    spool.add(b"two")
    assert (sent(spool, 5), list(tmp_path.iterdir())) == (b"one two", [])


def test_much_output_waits_in_a_file_until_it_is_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    whole = bytes(range(256)) * (MEMORY_MAX // 128)
    for start in range(0, len(whole), 100_000):
        spool.add(whole[start : start + 100_000])
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    assert len(spool.piece(0, 10**9)) == PIECE_MAX
    assert sent(spool, 10**9) == whole
    assert list(tmp_path.iterdir()) == []


def test_output_is_added_while_earlier_output_is_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    spool.add(b"a" * (MEMORY_MAX + 1))
    spool.acknowledge(10)
    spool.add(b"b" * 5)
    assert sent(spool, 10**9) == b"a" * (MEMORY_MAX - 9) + b"b" * 5


def whole(size: int) -> bytes:
    return b"".join(b"%07d\n" % number for number in range(size // 8))


@pytest.mark.parametrize("step", [7, 1_000, 3_000_000])
@pytest.mark.parametrize("output_max", [4_000, 4 * MEMORY_MAX, 8 * MEMORY_MAX])
def test_of_too_much_output_head_and_tail_are_kept_and_the_dropped_bytes_are_counted(
    tmp_path: Path, output_max: int, step: int
) -> None:
    if output_max // step > 100_000:
        step *= 1_000
    printed, spool = whole(3 * output_max), Spool(tmp_path / "file", output_max)
    for start in range(0, len(printed), step):
        spool.add(printed[start : start + step])
    head = sent(spool, 10**9)
    assert head == printed[: output_max * 3 // 4], "it is streamed"
    spool.finish()
    line, _, tail = sent(spool, 10**9).partition(b"\n")
    assert (spool.truncated, spool.size <= output_max) == (True, True)
    assert len(tail) == output_max // 4 - GAP_LINE_MAX
    assert printed.endswith(tail)
    missing = len(printed) - len(head) - len(tail)
    note = f"taskyard: {missing} bytes of output were dropped here; {output_max} are kept of an attempt"
    assert line.decode() == note
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [3_000, 3_001, 4_000])
def test_output_within_the_limit_is_complete(tmp_path: Path, size: int) -> None:
    spool, printed = Spool(tmp_path / "file", 4_000), b"x" * size
    spool.add(printed)
    spool.finish()
    assert (sent(spool, 999), spool.truncated) == (printed, False)


def test_the_note_about_dropped_output_begins_a_line(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", 4_000)
    spool.add(b"x" * 9_000)
    spool.finish()
    assert sent(spool, 10**9)[3_000:].startswith(b"\ntaskyard: 5128 bytes of output were dropped here; ")


def test_everything_after_the_head_can_be_kept_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rest" / "file"
    printed, spool = whole(3 * MEMORY_MAX), Spool(tmp_path / "file", MEMORY_MAX, rest_file=file)
    for start in range(0, len(printed), 100_000):
        spool.add(printed[start : start + 100_000])
    spool.finish()
    kept = sent(spool, 10**9)
    spool.close()
    head = MEMORY_MAX * 3 // 4
    assert printed[:head] + file.read_bytes() == printed
    assert kept[:head] == printed[:head]
    assert kept.endswith(printed[-(MEMORY_MAX // 4 - GAP_LINE_MAX) :])


def test_a_full_disk_costs_the_tail_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file.tail").symlink_to("/dev/full")
    spool = Spool(tmp_path / "file", 16 * MEMORY_MAX)
    printed = b"a" * (12 * MEMORY_MAX) + b"b" * (2 * MEMORY_MAX)
    spool.add(printed)
    head = sent(spool, 10**9)
    spool.finish()
    assert (spool.truncated, "No space left" in spool.trouble) == (True, True)
    assert (head + sent(spool, 10**9)).startswith(b"a" * (12 * MEMORY_MAX))


def test_an_acknowledgement_never_moves_backwards(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    spool.add(b"123456")
    spool.acknowledge(4)
    spool.acknowledge(2)
    assert sent(spool, 100) == b"56"


def test_a_full_disk_costs_later_output_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to("/dev/full")
    spool = Spool(tmp_path / "file", OUTPUT_MAX)
    first = b"a" * (MEMORY_MAX + 1)
    spool.add(first)
    spool.add(b"more")
    assert (spool.truncated, "No space left" in spool.trouble) == (True, True)
    assert sent(spool, 10**9) == first
    spool.close()
