"""How fast Taskyard is, measured against a floor or a peer in the same run.

`python -m benchmarks.NAME` prints a table; `--json` adds one JSON line at the end, `--check` exits 1 when a must is
missed, `--quick` runs a small version that only shows that the benchmark still works. `python -m benchmarks` runs all.
"""
