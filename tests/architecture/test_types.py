"""What the package tells a type checker in an environment into which only its wheel was installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = Path(weft.__file__).parent
SCRIPT = Path(__file__).with_name("user_script.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the package that is tested, with nothing but what is installed here."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(SOURCE, tree / "src" / "weft", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=tree, check=True, capture_output=True, timeout=60)
    (built,) = (tree / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel, and what it needs from this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # A path file of that folder, such as that of an editable install, is not read.
    (packages / "rest.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder / "bin" / "python"


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("weft/")}
    there = {f"weft/{path.relative_to(SOURCE)}" for path in SOURCE.rglob("*") if path.is_file()}
    assert packed == {name for name in there if "__pycache__" not in name}
    assert "weft/py.typed" in packed


def test_the_wheel_tells_pytest_of_its_plugin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/entry_points.txt")]
        assert "[pytest11]\nweft = weft.testing.plugin\n" in archive.read(name).decode()


def test_a_program_of_a_user_has_the_types_that_are_promised(python: Path, tmp_path: Path) -> None:
    program = Path(shutil.copy(SCRIPT, tmp_path))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--cache-dir", "."]
    checked = subprocess.run(
        [*mypy, program.name],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")},
    )  # fmt: skip
    assert checked.stdout == "Success: no issues found in 1 source file\n", checked.stdout + checked.stderr
