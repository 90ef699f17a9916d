"""What a word is to full-text search: cut here, alike for both databases and alike when storing and when asking.

SQLite's and PostgreSQL's own ways to cut differ: PostgreSQL takes `orders.created` for a host and `a/b` for a file,
SQLite drops accents. Given words of letters and digits with spaces between them, both keep them as they are.
"""

import re
import unicodedata

WORD_LENGTH_MAX = 64
"""Longer words are found by their beginning: PostgreSQL refuses lexemes above 2 kB, and nobody types one."""
TEXT_LENGTH_MAX = 200_000
"""More of a text is not searched. PostgreSQL refuses an entry above 1 MB."""

_WORD = re.compile(r"[^\W_]+")
# Most texts are ASCII; a table cuts them in a quarter of the time of the expression.
_ASCII = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else ord(" ") for code in range(256))


def cut_words(text: str) -> list[str]:
    """The words of a text in their order: small letters without accents, and digits."""
    text = text[:TEXT_LENGTH_MAX]
    if text.isascii():
        words = text.encode().translate(_ASCII).decode().split()
        if max(map(len, words), default=0) > WORD_LENGTH_MAX:
            words = [word[:WORD_LENGTH_MAX] for word in words]
        return words
    decomposed = unicodedata.normalize("NFKD", text)
    text = "".join([character for character in decomposed if not unicodedata.combining(character)])
    return [word[:WORD_LENGTH_MAX] for word in _WORD.findall(text.lower())]


def searchable(text: str) -> str:
    """A text as it goes into the full-text index."""
    return " ".join(cut_words(text))
