"""What a person is asked, and what was decided: by somebody, or by silence. Nothing here knows a clock."""

from taskyard.core.graph.document import Payload
from taskyard.core.graph.payload import Silence
from taskyard.core.graph.times import span_ms
from taskyard.core.values import value
from taskyard.core.words import Kind, Millis


@value
class Question:
    """What a person is asked, and what it means when nobody answers."""

    message: str
    on_timeout: Silence = Silence.DENY


@value
class Decision:
    """What was decided about an approval; it is the result of its task, as JSON."""

    approved: bool
    at_ms: Millis
    by: str | None = None  # nobody, if time was over
    comment: str = ""
    timed_out: bool = False


def question(payload: Payload) -> Question:
    """Read what the payload of an approval asks."""
    asked = payload[Kind.APPROVAL]
    if isinstance(asked, dict):
        return Question(str(asked["message"]), Silence(asked.get("on_timeout", Silence.DENY)))
    return Question(str(asked))


def by_silence(asked: Question, now: Millis) -> Decision:
    """Decide for whoever did not."""
    return Decision(asked.on_timeout is Silence.APPROVE, now, timed_out=True)


def patience_ms(payload: Payload) -> int | None:
    """Say how long what the server runs itself may take; None is for ever: a person, or a graph, takes its time."""
    said = payload.get("timeout")
    return span_ms(said) if isinstance(said, str) else None
