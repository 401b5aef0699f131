"""The story of a task as it is told outside: ids as text, and one kind of item for all that happened."""

from taskyard.core.ids import Key, text_of
from taskyard.views.story import Asked, Moved, Story
from taskyard.views.tasks import reused
from taskyard.wire.api import StoryItem, StoryView


def told(story: Story) -> StoryView:
    """Tell a story."""
    birth = story.birth
    return StoryView(
        task=text_of(Key(birth.task)),
        graph_id=text_of(Key(birth.graph)),
        label=birth.label,
        created_ms=birth.created_ms,
        state=story.state.text,
        whole=story.whole,
        items=[_item(one) for one in story.happened],
        reused=reused(birth.source),
    )


def _item(one: Moved | Asked) -> StoryItem:
    if isinstance(one, Asked):
        return StoryItem(one.at_ms, actor=one.actor, action=one.action, about=one.about.value, note=one.note)
    return StoryItem(
        one.at_ms,
        signal=one.signal.text,
        source=one.source.text,
        target=one.target.text,
        reason=None if one.reason is None else one.reason.text,
        attempt=one.attempt,
        bot=one.bot,
    )
