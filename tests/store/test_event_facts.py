"""Facts are decoded as they were encoded, and stored letters keep their meaning."""

import pytest

from taskyard.core.events import EXTEND
from taskyard.core.states import GraphState, Signal, State
from taskyard.store.repo.events import (
    SIGNAL_LETTERS,
    STATE_LETTERS,
    UNREADABLE,
    MalformedFacts,
    decode_facts,
    encode_fact,
    encode_transition,
)


def test_every_state_and_every_signal_has_a_letter_of_its_own() -> None:
    assert set(STATE_LETTERS) == {None, UNREADABLE, *(str(word) for word in (*State, *GraphState))}
    assert set(SIGNAL_LETTERS) == {None, EXTEND, *(str(word) for word in Signal)}
    assert len(set(STATE_LETTERS.values())) == len(STATE_LETTERS)
    assert len(set(SIGNAL_LETTERS.values())) == len(SIGNAL_LETTERS)


def test_a_stored_letter_keeps_its_meaning() -> None:
    assert ("".join(STATE_LETTERS.values()), "".join(SIGNAL_LETTERS.values())) == (
        "-ubpwrtsfecgkd?",
        "-RBDSMUANCYFLVXZKGE",
    )


@pytest.mark.parametrize("attempt", [None, 3])
@pytest.mark.parametrize("bot", [None, 'a "bot"'])
@pytest.mark.parametrize("reason", [None, "exit_code"])
def test_a_fact_is_decoded_as_it_was_encoded(attempt: int | None, bot: str | None, reason: str | None) -> None:
    move = encode_transition("running", "failed", "fail")
    plain = encode_fact(encode_transition(None, "running", None), None, None, None)
    row = f"[{encode_fact(move, attempt, bot, reason)},{plain}]"

    assert decode_facts(row) == [
        ("running", "failed", "fail", attempt, bot, reason),
        (None, "running", None, None, None, None),
    ]


def test_a_fact_without_attempt_bot_and_reason_is_its_move_alone() -> None:
    assert encode_fact(encode_transition("waiting", "running", "claim"), 0, None, None) == '["wCr"]'


@pytest.mark.parametrize("row", ["nonsense", "[[]]", '[["w!r"]]', '[["-C-"]]', '[["wCr", "one"]]'])
def test_malformed_facts_are_refused(row: str) -> None:
    with pytest.raises(MalformedFacts):
        decode_facts(row)
