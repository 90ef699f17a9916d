"""An error's text without what differs from one message to the next, so that errors of one kind read alike."""

import re
from functools import lru_cache

NORMALISED_MAX = 200
_READ_MAX = 1_000
_UNITS = r"(?:[mµun]?s|secs?|min|[hd]|[kKMGT]?i?[bB]|%)"

# One pass, the most particular first. Every group's name is its placeholder.
_VARYING = re.compile(
    r"(?P<uuid>(?<!\w)[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?!\w))"
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
_HAS_DIGIT = re.compile(r"\d")


def normalise_message(text: str) -> str:
    """The text on one line with `<n>`, `<uuid>`, `<hex>`, `<time>`, `<text>`, `<email>` and `<id>` for what varies."""
    text = text[:_READ_MAX]
    if text.isascii() and "0x" not in text and "0X" not in text:
        # Errors of one kind mostly differ in numbers alone: with all digits alike the work was done before.
        normalised = _normalise(text.translate(_ALIKE))
        if _HAS_DIGIT.search(normalised) is None:
            return normalised
    return _normalise(text)


@lru_cache(maxsize=1024)
def _normalise(text: str) -> str:
    line = " ".join(text.split())
    return _VARYING.sub(_placeholder, line)[:NORMALISED_MAX].strip()


def _placeholder(found: "re.Match[str]") -> str:
    kind = found.lastgroup or "id"
    # A long number is a number, whatever else it could be.
    if kind == "hex" and _ONLY_DIGITS.fullmatch(found.group()):
        kind = "n"
    return f"<{kind}>"
