"""Ends with 1 unless the newest entry of CHANGELOG.md is the version of the package."""

import re
import runpy
import sys
from pathlib import Path

version = runpy.run_path("tally/__init__.py")["__version__"]
newest = re.search(r"^## (\S+)$", Path("CHANGELOG.md").read_text(), re.MULTILINE)
if not newest or newest[1] != version:
    sys.exit(f"CHANGELOG.md begins with {newest and newest[1]}, the package is {version}")
print(f"{version} has its entry")
