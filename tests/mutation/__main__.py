"""Takes each guard away in turn and shows that a test misses it: ``python -m tests.mutation``.

The package is copied, the guard is removed in the copy, and the tests that should notice run against it. First the
few that are named with the guard, then all tests of the store. Exits with 1 when a guard was missed by none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from guards import GUARDS, REDUNDANT, Guard  # noqa: E402  (this folder is no package for those who run pytest)

PACKAGE = ROOT / "src" / "weft"


def files_of(tests: str) -> list[str]:
    """Return the paths of tests: of files by their names, and of one test as ``file::test``."""
    found = []
    for name in tests.split():
        file, mark, test = name.partition("::")
        found.append(f"{next((ROOT / 'tests').rglob(f'{file}.py'))}{mark}{test}")
    return found


def run_against(guard: Guard, tests: list[str], package: Path = PACKAGE, timeout: float = 600) -> tuple[bool, str]:
    """Run tests against a copy of the package without the guard; return whether one failed, and the last lines."""
    with tempfile.TemporaryDirectory(prefix="weft-mutant-") as folder:
        copy = Path(folder) / "weft"
        # With what is compiled: times of files are kept, but for the one that differs.
        shutil.copytree(package, copy)
        path, text = guard.removed_from(copy)
        path.write_text(text, encoding="utf-8")
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = {**own, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        loaded = subprocess.run(
            [sys.executable, "-c", "import weft; print(weft.__file__)"],
            cwd=folder, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert loaded.stdout.startswith(str(copy)), f"the tests would not see the mutant but {loaded.stdout}"
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "--show-capture=no", "-p", "no:randomly",
            "-p", "no:cacheprovider", "-p", "no:schemathesis", "--timeout=60", "--deep", *tests,
        ]  # fmt: skip
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=timeout
        )
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))] or [ran.stdout[-300:]]
    # 1: tests failed. Anything else but 0 says that nothing was shown.
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {ran.returncode}:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.returncode == 1, lines[0]


def try_guard(guard: Guard, package: Path) -> tuple[Guard, bool, str, float]:
    """Try the tests named with a guard, then all of the store."""
    began = time.monotonic()
    # None are named with a guard that is redundant, and pytest without a name runs all there are.
    killed, line = run_against(guard, files_of(guard.tests), package) if guard.tests else (False, "")
    if not killed:
        everything = [
            path for path in map(str, sorted((ROOT / "tests" / "store").glob("test_*.py"))) if "embedded" not in path
        ]
        killed, line = run_against(guard, everything, package)
    return guard, killed, line, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="try only guards whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the guards and end")
    parser.add_argument("--redundant", action="store_true", help="try the guards listed as redundant instead")
    parser.add_argument("--jobs", type=int, default=2, help="how many to try at once")
    options = parser.parse_args()
    source = [guard for guard, _ in REDUNDANT] if options.redundant else GUARDS
    guards = [guard for guard in source if options.only in guard.name]
    for guard in [*GUARDS, *(guard for guard, _ in REDUNDANT)]:
        guard.removed_from(PACKAGE)
    if options.list:
        print("\n".join(guard.name for guard in guards))
        return 0
    survivors = []
    # What is tried is the package as it is now, whatever happens to it meanwhile.
    with tempfile.TemporaryDirectory(prefix="weft-original-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        original = Path(shutil.copytree(PACKAGE, Path(folder) / "weft"))
        for guard, killed, line, seconds in pool.map(lambda guard: try_guard(guard, original), guards):
            print(f"{'killed' if killed else 'SURVIVED':9} {seconds:5.1f} s  {guard.name}", flush=True)
            print(f"{'':19}{line[:150] if killed else ''}", flush=True)
            if not killed:
                survivors.append(guard)
    if not options.redundant:
        for guard, reason in REDUNDANT:
            print(f"redundant           {guard.name}\n{'':19}{reason}")
    print(f"{len(guards) - len(survivors)} of {len(guards)} killed")
    return 1 if survivors and not options.redundant else 0


if __name__ == "__main__":
    sys.exit(main())
