"""Counts the words of all text files in a folder, a task for each file, and writes what it found.

Shows: a fan-out over real files, four at a time; values that all tasks share; an end that writes a file.
Run it: `python count_words.py FOLDER`
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import weft


@weft.task
def list_files(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.txt"))


@weft.task(retry=2)
def count_words(path: str, shortest: int) -> dict[str, int]:
    words = re.findall(r"[a-zäöüß]+", Path(path).read_text(encoding="utf-8").lower())
    return dict(Counter(word for word in words if len(word) >= shortest))


@weft.task
def merge(counts: list[dict[str, int]], top: int) -> list[tuple[str, int]]:
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return sorted(found.items(), key=lambda entry: (-entry[1], entry[0]))[:top]


@weft.task
def write(path: str, words: list[tuple[str, int]]) -> str:
    # Written beside and moved, so that nobody reads half of it, and a second attempt does no harm.
    draft = Path(path).with_suffix(".part")
    draft.write_text(json.dumps(dict(words), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
    return path


@weft.workflow
def words(folder: str, shortest: int = 4, top: int = 3) -> str:
    counts = count_words.using(max_parallel=4).map(list_files(folder), shortest=shortest)
    return write(f"{folder}/words.json", merge(counts, top))


if __name__ == "__main__":
    written = weft.run(words, folder=sys.argv[1])
    print(Path(written).read_text(encoding="utf-8"), end="")
