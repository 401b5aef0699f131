"""The story of a task as it is told outside: ids as text, one kind of item for all that happened, with its cause."""

from taskyard.core.ids import Key, text_of
from taskyard.store.connection import Txn
from taskyard.views.causes import Cause, causes
from taskyard.views.story import Asked, Moved, Story
from taskyard.views.tasks import reused
from taskyard.wire.api import StoryItem, StoryView


def told(txn: Txn, story: Story, lease_ms: int) -> StoryView:
    """Tell a story, with what brought about each part of it."""
    birth = story.birth
    before = [birth.created_ms, *(one.at_ms for one in story.happened)]
    return StoryView(
        task=text_of(Key(birth.task)),
        graph_id=text_of(Key(birth.graph)),
        label=birth.label,
        created_ms=birth.created_ms,
        state=story.state.text,
        whole=story.whole,
        items=[
            _item(one, cause, one.at_ms - last)
            for one, cause, last in zip(story.happened, causes(txn, story, lease_ms), before, strict=False)
        ],
        reused=reused(birth.source),
    )


def _item(one: Moved | Asked, cause: Cause, after_ms: int) -> StoryItem:
    by = None if cause.task is None else text_of(Key(cause.task))
    if isinstance(one, Asked):
        return StoryItem(
            one.at_ms,
            actor=one.actor,
            action=one.action,
            about=one.about.value,
            note=one.note,
            cause=cause.text,
            after_ms=after_ms,
        )
    return StoryItem(
        one.at_ms,
        signal=one.signal.text,
        source=one.source.text,
        target=one.target.text,
        reason=None if one.reason is None else one.reason.text,
        attempt=one.attempt,
        bot=one.bot,
        cause=cause.text,
        cause_task=by,
        cause_label=cause.label,
        after_ms=after_ms,
    )
