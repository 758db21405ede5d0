"""Tables of aligned columns."""

import statistics
from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], to_the_left: Collection[str]) -> str:
    """Return the rows, the first of which is the head, as lines; numbers stand to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        columns = zip(rows[0], row, widths, strict=True)
        cells = [text.ljust(width) if name in to_the_left else text.rjust(width) for name, text, width in columns]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def cell(values: Sequence[float], style: str) -> str:
    """Return the median, with the range in brackets where there are several values; a dash for none."""
    if not values:
        return "–"
    text = format(statistics.median(values), style)
    return text if len(values) == 1 else f"{text} [{min(values):{style}}..{max(values):{style}}]"
