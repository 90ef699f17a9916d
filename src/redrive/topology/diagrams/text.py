"""Names as pictures may show them: without invisible characters, without escape sequences, with a known width.

A queue may be called anything, so a name is data for a terminal, for Mermaid and for XML. Here every character that
draws nothing or moves the cursor becomes a visible one; each renderer escapes its own syntax after that.
"""

import unicodedata
from collections.abc import Iterable

_MONOSPACE_EM = 0.602
_SANS_EM = 0.56
_CONTROL_PICTURES = 0x2400
ELLIPSIS = "…"


def visible(text: str) -> str:
    """The text with control characters as their pictures (␊) and other invisible ones as escapes (\\u202e)."""
    if text.isprintable():
        return text
    return "".join(_seen(character) for character in text)


def columns(text: str) -> int:
    """How many terminal columns a text fills."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def text_width(text: str, size: float, *, monospace: bool) -> float:
    """How wide a text is in pixels: a generous estimate, since the reader's fonts are unknown."""
    em = _MONOSPACE_EM if monospace else _SANS_EM
    return columns(text) * size * em


def shorten(text: str, width: float, size: float, *, monospace: bool) -> str:
    """The text, its middle left out where it is wider than `width` pixels."""
    if text_width(text, size, monospace=monospace) <= width:
        return text
    room = max(3, int(width / text_width("0", size, monospace=monospace))) - 1
    return _taken(text, room - room // 2) + ELLIPSIS + _taken(text[::-1], room // 2)[::-1]


def keys_in_two_lines(keys: Iterable[str]) -> tuple[str, str]:
    """Routing keys for above and below an arrow; from the third on they are only counted."""
    distinct = [visible(key) for key in dict.fromkeys(keys) if key]
    if len(distinct) <= 2:
        return (*distinct, "", "")[0], (*distinct, "", "")[1]
    return distinct[0], f"+{len(distinct) - 1} more"


def _taken(text: str, room: int) -> str:
    taken = []
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        taken.append(character)
    return "".join(taken)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _seen(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    if code == 0x7F:
        return "\u2421"
    # A plain space, and the joiners that emoji and many scripts need, stay.
    if character.isprintable() or character in "\u200c\u200d":
        return character
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
