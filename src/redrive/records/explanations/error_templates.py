"""An error's text without what differs from one message to the next, so that errors of one kind read alike.

Numbers that say what kind it is (`error_codes`) stay.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from redrive.records.explanations.error_codes import CODE

NORMALISED_MAX = 200
_READ_MAX = 1_000
_UNITS = r"(?:[mµun]?s|secs?|min|[hd]|[kKMGT]?i?[bB]|%)"

# One pass, the most particular first. Every group's name is its placeholder; a code stays, also one in quotes.
_VARYING = re.compile(
    rf"(?P<code>{CODE})"
    r"|(?P<uuid>(?<!\w)[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?!\w))"
    r"|(?P<time>(?<!\w)\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\w))"
    r"""|(?P<text>(?<!\w)(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'|`[^`\n]{0,300}`|“[^”\n]{0,300}”|«[^»\n]{0,300}»)(?!\w))"""
    r"|(?P<email>[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+)"
    r"|(?P<hex>(?<!\w)(?:0[xX][0-9a-fA-F]+|[0-9a-fA-F]{8,})(?!\w))"
    rf"|(?P<n>(?<!\w)[+-]?\d+(?:[.,:]\d+)*(?={_UNITS}?(?!\w)))"
    r"|(?P<id>(?<!\w)\w*\d\w*)"
)
_ONLY_DIGITS = re.compile(r"\d+")


# To the expressions one digit is as good as another, but for the zero that begins `0x`.
_ALIKE = str.maketrans("023456789", "111111111")
_CODES_MAX = 5


def normalise_message(text: str) -> str:
    """The text on one line with `<n>`, `<uuid>`, `<hex>`, `<time>`, `<text>`, `<email>` and `<id>` for what varies."""
    return "".join(_parts(_line(text)))[:NORMALISED_MAX].strip()


def error_codes(text: str) -> str:
    """The codes of a text, in their order; empty if it has none."""
    line = _line(text)
    found = [line[part].lower() for part in _template_of(line) if isinstance(part, slice)]
    return " ".join(dict.fromkeys(found[:_CODES_MAX])) if found else ""


def _line(text: str) -> str:
    return " ".join(text[:_READ_MAX].split())


def _parts(line: str) -> Iterator[str]:
    for part in _template_of(line):
        yield part if isinstance(part, str) else line[part]


def _template_of(line: str) -> tuple[str | slice, ...]:
    if line.isascii() and "0x" not in line and "0X" not in line:
        # Errors of one kind mostly differ in numbers alone: with all digits alike the work was done before.
        line = line.translate(_ALIKE)
    return _template(line)


@lru_cache(maxsize=1024)
def _template(line: str) -> tuple[str | slice, ...]:
    """What the line becomes: words that stay and placeholders, and for each code where it stands."""
    parts: list[str | slice] = []
    place = 0
    for found in _VARYING.finditer(line):
        parts.append(line[place : found.start()])
        place = found.end()
        kind = found.lastgroup or "id"
        if kind == "code":
            parts.append(slice(found.start(), place))
            continue
        # A long number is a number, whatever else it could be.
        if kind == "hex" and _ONLY_DIGITS.fullmatch(found.group()):
            kind = "n"
        parts.append(f"<{kind}>")
    parts.append(line[place:])
    return tuple(parts)
