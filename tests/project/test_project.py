"""The project is self-contained: no foreign addresses, no paths of one machine, floors and benchmarks in order."""

import configparser
import re
from pathlib import Path

import taskyard
from tests.project.tree import ROOT, SOURCES, files, name

TEXTS = [path for path in files() if path.suffix not in {".png", ".gz"} and path.stat().st_size < 2_000_000]
#: Addresses of package registries and of one machine, spelled so that this file does not name them itself.
FOREIGN = re.compile(r"pypi\.org|pythonhosted|registry\.npm|registry\.yarn|deb\.debian|/(?:work|farm|root|home)/[a-z.]")


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = {
        name(path): FOREIGN.findall(path.read_text(encoding="utf-8", errors="replace"))
        for path in TEXTS
        if path != Path(__file__)
    }
    assert {path: addresses for path, addresses in found.items() if addresses} == {}


def test_every_package_has_its_layer_in_the_import_contract() -> None:
    floors = configparser.ConfigParser()
    floors.read(ROOT / ".importlinter")
    layers = set(re.findall(r"\w+", floors["importlinter:contract:floors"]["layers"]))
    parts = {path.stem for path in SOURCES.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert parts - {"__init__", "py", "__pycache__"} == layers
    assert all(
        floors[section].get("exhaustive") == "true" for section in floors.sections() if "layers" in floors[section]
    )


def test_the_public_names_are_there() -> None:
    assert {"Dag", "DagError", "Scheduler", "SchedulerError"} <= set(taskyard.__all__)
    assert issubclass(taskyard.SchedulerError, RuntimeError)


def test_requirements_are_pinned_with_hashes_and_without_addresses() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text
        pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert pins
        assert all("==" in pin and pin.endswith("\\") for pin in pins)
