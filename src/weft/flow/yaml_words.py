"""What is wrong with the writing of YAML: what its parser says, in the words of definitions."""

from __future__ import annotations

_INDENTATION = "look at the indentation"
# By the beginning of what the parser says, or of what it was about when it said it.
_WORDS = {
    "mapping values are not allowed": "a `:` stands where no mapping can begin: put the text with it into quotes",
    "found character that cannot start any token": "no text begins with this character: put it into quotes, and indent "
    "by blanks",
    "found unexpected end of stream": "a text in quotes has no end",
    "found unexpected document indicator": "a text in quotes has no end",
    "found unknown escape character": "a `\\` in double quotes stands for no character: write `\\\\`, or single quotes",
    "did not find expected hexdecimal number": "a `\\` in double quotes stands for no character: write `\\\\`",
    "did not find expected node content": "a value is missing here",
    "did not find expected ',' or '}'": "a `,` or the `}` of the mapping is missing",
    "did not find expected ',' or ']'": "a `,` or the `]` of the list is missing",
    "did not find expected '-' indicator": f"the list goes on with `- `, and this is none of its items: {_INDENTATION}",
    "did not find expected key": f"a key of the mapping belongs here: {_INDENTATION}",
    "did not find expected <document start>": f"this belongs to nothing above it: {_INDENTATION}",
    "could not find expected ':'": "a key has no `:` after it",
    "block sequence entries are not allowed": f"a list cannot begin here: {_INDENTATION}",
    "mapping keys are not allowed": f"a key cannot stand here: {_INDENTATION}",
    "found a tab character": "lines are indented by blanks, and not by tabs",
    "did not find expected alphabetic or numeric character": "the name of an anchor `&` or of an alias `*` is missing",
    "found undefined tag handle": "tags such as `!name` are not used here",
    "did not find URI": "tags such as `!name` are not used here",
    "did not find the expected '>'": "tags such as `!name` are not used here",
    "found unknown directive": "lines that begin with `%` are not used here",
    "did not find expected comment or line break": "after `|` or `>` the text begins on the next line",
    "found an indentation indicator equal to 0": "after `|` or `>` the text begins on the next line",
}


def yaml_problem(said: str | None) -> str:
    """Return what is wrong with a document of which the parser has ``said`` so in its own words."""
    found = next((words for begins, words in _WORDS.items() if (said or "").startswith(begins)), None)
    return found or f"this cannot be read as YAML: look at quotes and brackets, and {_INDENTATION}"
