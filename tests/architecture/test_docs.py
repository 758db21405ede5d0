"""The documentation is current, complete and connected."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path

import pytest

import weft
from weft.cli.failures import UNEXPECTED
from weft.cli.main import INTERRUPTED
from weft.core.settings import ENVIRONMENT_ONLY, Settings
from weft.core.states import TRANSITIONS, OutboxState, TaskState, WorkerState
from weft.worker.heart import EXIT_BLOCKED

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from docs.generate import pages_with_examples, reference_pages  # noqa: E402
from docs.pages import cli, errors, examples, figures, python  # noqa: E402

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
CODE = re.compile(r"(?P<before>[^\n]*)\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
MUST_RUN = {"python", "sql", "sh", "bash", "shell"}


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as the usual renderers make them."""
    found = set()
    for heading in HEADING.findall(without_code(read(page))):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def links(page: Path) -> list[str]:
    return [match["target"] for match in LINK.finditer(without_code(read(page)))]


async def test_the_generated_pages_are_current(url: str) -> None:
    for name, text in (await reference_pages(url)).items():
        assert read(REFERENCE / name) == text, f"docs/reference/{name} is out of date: run `make docs`"


@pytest.mark.parametrize("page", pages_with_examples(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_are_current(page: Path) -> None:
    assert examples.refreshed(read(page), page) == read(page), "an example is out of date: run `make docs`"


def test_the_figures_of_the_page_on_speed_are_those_of_one_run() -> None:
    page = read(DOCS / "explanation" / "speed.md")
    assert "<!-- figures: begin -->" in page
    assert figures.refreshed(page) == page, "the figures are out of date: run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped_at_120(page: Path) -> None:
    if not read(page).startswith("<!-- Written by"):
        lines = without_code(read(page)).splitlines()
        assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


def test_every_error_code_is_documented() -> None:
    assert {kind.code for kind in errors.all_errors()} <= anchors(REFERENCE / "errors.md")


def test_every_exit_code_is_documented() -> None:
    text = read(REFERENCE / "cli.md")
    for code in {kind.exit_code for kind in errors.all_errors()} | {UNEXPECTED, EXIT_BLOCKED, INTERRUPTED}:
        assert f"\n| {code} | " in text, f"exit code {code} is not documented"


def test_every_command_that_ends_with_an_answer_prints_json() -> None:
    without = {
        path
        for path, function in cli.commands()
        if "--json" not in {parameter.shown for parameter in cli.parameters(function)}
    }
    assert without == {
        "weft dev",
        "weft worker",
        "weft orchestrator",
        "weft server",
        "weft demo",
        "weft tasks logs",
        "weft db psql",
    }


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in errors.all_errors()]
    assert sorted(codes) == sorted(set(codes))


def test_every_setting_is_documented_with_a_meaning() -> None:
    text = read(REFERENCE / "settings.md")
    for variable in ENVIRONMENT_ONLY:
        assert f"| `{variable}` |" in text
    for field in dataclasses.fields(Settings):
        row = re.search(rf"^\| `WEFT_{field.name.upper()}` \|.*\| (.+) \|$", text, re.MULTILINE)
        assert row is not None, f"WEFT_{field.name.upper()} is not documented"
        assert len(row[1]) > 10


def test_every_state_and_every_verb_is_documented() -> None:
    text = read(REFERENCE / "states.md")
    for name in (*TaskState, *WorkerState, *OutboxState, *(step.verb for step in TRANSITIONS)):
        assert re.search(rf"^\| `{name}`(?: \(later\))? \|", text, re.MULTILINE), f"{name} is not documented"
    for step in TRANSITIONS:
        for source in step.sources if step.verb != "cancel" else ():
            assert f"{source} --> {step.target}: {step.verb}" in text, f"{step} is not in the diagram"


def test_every_public_name_is_documented() -> None:
    assert sorted(python.names()) == sorted(weft.__all__)
    headings = HEADING.findall(read(REFERENCE / "python.md"))
    assert {f"`weft.{name}`" for name in weft.__all__} <= set(headings)


def test_every_public_method_of_the_client_is_documented() -> None:
    headings = HEADING.findall(read(REFERENCE / "python.md"))
    methods = {name for name, _ in inspect.getmembers(weft.Client, callable) if not name.startswith("_")}
    assert {f"`Client.{name}`" for name in methods} <= set(headings)


def test_every_command_is_documented_with_all_its_options() -> None:
    text = read(REFERENCE / "cli.md")
    for path, function in cli.commands():
        assert f"## `{path}`" in text, f"{path} is not documented"
        assert (function.__doc__ or "").strip(), f"{path} has no help"
        for parameter in cli.parameters(function):
            assert parameter.help, f"{path} {parameter.shown} has no help"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_a_page_resolves(page: Path) -> None:
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(found), f"{target}: there is no such heading"


def test_every_page_is_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        paths = (target.partition("#")[0] for target in links(page) if not re.match(r"[a-z]+:", target))
        waiting += [(page.parent / path).resolve() for path in paths if path]
    assert {page for page in PAGES if page.is_relative_to(DOCS)} - seen == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_code_block_is_a_file_that_a_test_runs_or_says_why_not(page: Path) -> None:
    tests = ROOT / "tests" / "examples"
    run = read(tests / "test_docs_examples.py") + read(tests / "test_workflow_examples.py")
    for block in CODE.finditer(read(page)):
        if example := re.fullmatch(r"<!-- example: ([\w./-]+?)(?:#\w+)? -->", block["before"]):
            assert f'"{Path(example[1]).name}"' in run, f"no test runs {example[1]}"
            continue
        is_excused = re.fullmatch(r"<!-- not run: .+ -->", block["before"]) is not None
        assert is_excused or block["language"] not in MUST_RUN, f"not run, and no reason given:\n{block['text'][:200]}"


def test_every_example_is_shown_on_some_page() -> None:
    shown = {match["name"] for page in PAGES for match in examples.MARK.finditer(read(page))}
    others = {name for name in shown if name.startswith("../workflows/")}
    assert {path.name for path in examples.FOLDER.iterdir() if path.is_file()} == shown - others


def test_changelog_fragments_are_named_by_kind() -> None:
    for fragment in (ROOT / "changelog.d").iterdir():
        assert re.fullmatch(r"[\w-]+\.(added|changed|fixed)\.md", fragment.name), fragment.name
        assert read(fragment).strip()
