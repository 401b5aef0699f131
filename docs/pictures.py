"""Makes the pictures of the web page in docs/pictures/, from a server with bots: `make pictures`."""

import tempfile
from pathlib import Path

from playwright.sync_api import expect

from taskyard.store import migrate
from tests.e2e.cluster import cluster
from tests.ui.browser import Watched, browser
from tests.ui.demo import populate

PICTURES = Path(__file__).parent / "pictures"


def main() -> None:
    """Start everything, open each page that has a picture, and take it."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        database = f"sqlite:///{folder}/taskyard.db"
        migrate.upgrade(database)
        with cluster(Path(folder), database) as one:
            one.bot("attic", "--dimension", "gpu=a100", slots=4)
            one.bot("cellar", slots=2)
            graphs = populate(one)
            context = chromium.new_context(
                viewport={"width": 1360, "height": 850}, color_scheme="light", reduced_motion="reduce"
            )
            watched = Watched(context, one.url)
            watched.sign_in(one.token)
            page = watched.open("/")
            # Counts are written every ten seconds, and read every five.
            expect(page.get_by_role("img", name="Tasks that ended: successful 0")).to_have_count(0)
            expect(page.locator(".card", has_text="What is held, and why")).to_contain_text("device:7")
            page.screenshot(path=PICTURES / "overview.png")
            watched.open(f"/graphs/{graphs['release'].id}?task={graphs['release'].names['publish']}")
            expect(page.locator(".node")).to_have_count(13)
            expect(page.get_by_role("complementary", name="The chosen task")).to_contain_text("publish")
            page.screenshot(path=PICTURES / "graph.png")
            watched.open(f"/tasks/{graphs['held'].names['train']}")
            expect(page.locator(".card", has_text="Why it is not running")).to_contain_text("Nearest bot")
            page.screenshot(path=PICTURES / "task.png")
            context.close()


if __name__ == "__main__":
    main()
