"""A definition as YAML that reads back as what it was."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from weft.flow.document import scalar_of

# Beyond ASCII, of which PyYAML writes no character that cannot be seen: what may turn a line round or hide in it.
_UNSEEN = re.compile(r"[^\x00-\x7f]")


class _Dumper(yaml.SafeDumper):
    """Writes a text in quotes wherever it would be read as something else."""


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # PyYAML quotes by YAML 1.1, and definitions are read by 1.2: `12e03` is text to the one, a number to the other.
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if _reads_as_text(value) else '"')


def _reads_as_text(value: str) -> bool:
    try:
        return scalar_of(value) is value and value.isprintable()
    except ValueError:
        return False


_Dumper.add_representer(str, _text)


def write_yaml(data: Mapping[str, Any]) -> str:
    """Return a document as YAML, its keys in their order."""
    text = yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text if text.isascii() else _UNSEEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """Return what cannot be seen as it stands in double quotes, in which every text is that has some of it."""
    char = found[0]
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
