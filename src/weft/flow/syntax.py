"""What is wrong with the writing of an expression: what Jinja's parser says, in the words of definitions."""

from __future__ import annotations

import re

STATEMENTS = "statements `{% … %}` are not for definitions: use a conditional or a fan_out node"
_TOKENS = {
    "begin of print statement": "`{{`",
    "end of print statement": "`}}`",
    "end of template": "the end of the text",
    "name": "a name",
    "string": "a text",
    "integer": "a number",
    "float": "a number",
}
# What other languages write, by the first character that has no meaning here.
_MEANT = {
    "&": "Write `and`.",
    "|": "Write `or`; a single `|` goes before the name of a filter.",
    "!": "Write `not`, or `!=`.",
    "?": "Write `a if test else b`.",
    "=": "Write `==` to compare.",
    "$": "Names stand as they are: `inputs.size`.",
}
_PLAIN = {
    "expected name or number": "after `.` stands the name of a field, or a number",
    "expected subscript expression": "in `[ ]` stands a name in quotes, or a number",
    "invalid syntax for function call expression": "arguments with a name come after those without",
    "You cannot chain multiple tests with is": "`is` stands once: join two tests by `and`",
    "Missing end of comment tag": "a comment `{#` has no `#}`",
    "Invalid character in identifier": "a name has a character that names do not have",
}
_UNKNOWN_CHARACTER = re.compile(r"unexpected char (?P<quote>['\"])(?P<found>.+)(?P=quote) at \d+", re.DOTALL)
_OTHER_TOKEN = re.compile(
    r"(?:expected token '(?P<wanted>.+?)', got|unexpected) '(?P<found>.+?)'(?:, expected '(?P<end>.+)')?"
)


def syntax_problem(text: str, said: str, *, is_bare: bool = False) -> str:
    """Return what is wrong with a text, of which Jinja's parser has ``said`` so in its own words.

    A text that ``is_bare`` stands without ``{{ }}`` around it where it was written.
    """
    found = _told(text, said)
    return found.replace("`}}`", "the end").replace("in `{{ }}`", "in it") if is_bare else found


def _told(text: str, said: str) -> str:
    if "{%" in text:
        return STATEMENTS
    if said in _PLAIN:
        return _PLAIN[said]
    if said.startswith("Expected an expression"):
        return "there is nothing in `{{ }}`"
    if said.startswith(("unexpected end of template", "unexpected 'end of template'")):
        return "the text ends inside of an expression: `}}` is missing"
    if (unknown := _UNKNOWN_CHARACTER.fullmatch(said)) is not None:
        return _of_character(unknown["found"])
    if (other := _OTHER_TOKEN.fullmatch(said)) is not None:
        wanted = other["wanted"] or other["end"]
        if wanted is None and other["found"] in ")]}":
            return f"`{other['found']}` closes nothing that was opened"
        place = "a value" if wanted is None else _token(wanted)
        return f"{_token(other['found'])} stands where {place} belongs.{_hint(other['found'])}".rstrip(".")
    if "escape" in said or "Unicode" in said:
        return "a text has a `\\` that stands for no character: write `\\\\`"
    return "it cannot be read: look at its brackets, quotes and operators"


def _of_character(found: str) -> str:
    if found in ("'", '"', "\\'"):
        return f"a text that begins with {found[-1]} has no end"
    return f"`{found}` has no meaning here.{_hint(found)}".rstrip(".")


def _token(name: str) -> str:
    return _TOKENS.get(name, f"`{name}`")


def _hint(found: str) -> str:
    return f" {_MEANT[found]}" if found in _MEANT else ""
