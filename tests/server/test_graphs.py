"""Routes of graphs: what is stored, listed, shown, ended and tried again."""

from tests.server.yard import Yard, task


def test_a_graph_is_submitted_and_shown(either: Yard) -> None:
    made = either.submit(
        {
            "name": "nightly",
            "routing": "night",
            "tags": {"team": "core"},
            "tasks": {"a": task(), "b": task("a")},
        }
    )
    shown = either.get(f"/api/v1/graphs/{made.id}")
    moments = {shown.pop("created_ms"), shown.pop("moved_ms")}
    assert all(isinstance(one, int) for one in moments)
    assert shown == {
        "id": made.id,
        "name": "nightly",
        "state": "running",
        "settled": False,
        "canceled_ms": None,
        "active": 1,
        "behind": 1,
        "unhandled": 0,
        "routing": f"taskyard.{made.id}.night._",
        "description": "",
        "tags": {"team": "core"},
        "schedulerId": "taskyard",
        "counts": {"waiting": 1, "unscheduled": 1},
    }
