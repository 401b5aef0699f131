"""Whatever tasks, bots and people write, the page shows it as text: nothing of it runs, and nothing of it is markup."""

import pytest
from playwright.sync_api import expect

from taskyard.core.graph.scalars import name_fault
from tests.e2e.cluster import Cluster, Graph
from tests.ui.browser import Watched
from tests.ui.demo import task
from tests.ui.hostile import CORPUS

NAMES = [one for one in CORPUS if name_fault(one) is None]
#: What the corpus would leave in the document, if any of it were read as markup.
MARKUP = (
    "img[src='x'], iframe, object, embed, base, marquee, math, main style, main script, [onload], [onerror], [onfocus]"
)


@pytest.fixture(scope="module")
def hostile(yard: Cluster) -> Graph:
    """A graph whose labels are the corpus, whose log prints it, and whose files and texts are named like it."""
    (yard.folder / "corpus.txt").write_text("\n".join(CORPUS), encoding="utf-8")
    artifacts = [{"name": one, "path": "kept.txt"} for one in NAMES if "/" not in one][:50]
    text = f"'{yard.folder}/corpus.txt'"
    script = f"cat {text}; echo; printf '\\033[31m'; cat {text}; echo kept > kept.txt"
    prints = task(payload={"script": script, "outputs": artifacts})
    question = task(payload={"approval": {"message": CORPUS[1][:200]}})
    lines = "import json, sys; print(json.dumps(sys.stdin.read().splitlines()))"
    result = task(f'python3 -c "{lines}" < {text} > "$TASKYARD_RESULT"')
    labels = {one: task(payload={"noop": True}) for one in NAMES}
    graph = yard.submit(
        {
            **labels,
            "prints": prints,
            "asks": question,
            "results": result,
            "waits": task("true", dimensions={"pool": "default", "gpu": CORPUS[20]}),
        },
        name=CORPUS[1],
        description=" ".join(CORPUS[:20]),
        tags={f"tag{number}": one[:200] for number, one in enumerate(NAMES[:10])},
    )
    values = [one for one in NAMES if one[0] not in "<>=!"][:30]
    yard.bot("hostile", *(part for n, one in enumerate(values) for part in ("--dimension", f"d{n}={one}")))
    for label in ("prints", "results"):
        graph.until(label, "successful")
    return graph


def test_no_text_of_the_corpus_runs_anywhere(page: Watched, yard: Cluster, hostile: Graph) -> None:
    task_paths = [
        f"/tasks/{hostile.names['prints']}{part}" for part in ("", "/log", "/attempts", "/files", "/definition")
    ]
    paths = [
        "/",
        "/graphs",
        f"/graphs/{hostile.id}",
        f"/graphs/{hostile.id}/table",
        f"/graphs/{hostile.id}/timeline",
        f"/graphs/{hostile.id}/why",
        *task_paths,
        f"/tasks/{hostile.names['results']}",
        f"/tasks/{hostile.names['waits']}",
        f"/tasks/{hostile.names['asks']}",
        f"/tasks/{hostile.names[NAMES[0]]}",
        "/tasks",
        "/fleet",
        "/fleet/bots/hostile",
        "/audit",
    ]
    for path in paths:
        one = page.open(path)
        expect(one.get_by_role("heading").first).to_be_visible()
        expect(one.get_by_role("status", name="Loading")).to_have_count(0)
        assert one.locator(MARKUP).count() == 0, path
        assert page.wrong == [], path


def test_texts_are_shown_as_they_were_written(page: Watched, hostile: Graph) -> None:
    one = page.open(f"/tasks/{hostile.names['prints']}/log")
    expect(one.locator(".log-line").first).to_contain_text(CORPUS[0])
    expect(one.locator(".log-line").nth(1)).to_contain_text(CORPUS[1])
    page.open(f"/tasks/{hostile.names[NAMES[0]]}")
    expect(one.get_by_role("heading", level=1)).to_have_text(NAMES[0])


def test_the_policy_refuses_what_a_mistake_of_the_page_would_let_through(page: Watched) -> None:
    one = page.open("/graphs")
    expect(one.get_by_role("heading", name="Graphs")).to_be_visible()
    set_markup = "document.body.innerHTML = '<img src=x onerror=alert(1)>'"
    tried = f"() => {{ try {{ {set_markup}; return 'set'; }} catch (e) {{ return e.name; }} }}"
    assert one.evaluate(tried) == "TypeError"
    page.wrong.clear()  # the browser reports what it has refused
