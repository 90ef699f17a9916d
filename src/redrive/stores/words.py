"""What a word is to full-text search: cut here, alike for both databases and alike when storing and when asking.

SQLite's and PostgreSQL's own ways to cut differ: PostgreSQL takes `orders.created` for a host and `a/b` for a file,
SQLite drops accents. Given words of letters and digits with spaces between them, both keep them as they are.
"""

import re
import unicodedata
from itertools import chain

WORD_LENGTH_MAX = 64
"""Longer words are found by their beginning: PostgreSQL refuses lexemes above 2 kB, and nobody types one."""
TEXT_LENGTH_MAX = 200_000
"""More of a text is not searched. PostgreSQL refuses an entry above 1 MB."""

_WORD = re.compile(r"[^\W_]+")
# Most texts are ASCII; a table cuts them in a quarter of the time of the expression.
_ASCII = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else ord(" ") for code in range(256))
# Another one makes all letters alike, to see at once whether any word is too long.
_ALIKE = bytes(ord(" ") if each == ord(" ") else ord("x") for each in _ASCII)
_TOO_LONG = b"x" * (WORD_LENGTH_MAX + 1)
# PostgreSQL's own bounds: places beyond are all the last, and more of one word are forgotten.
_PLACE_MAX, _PLACES_OF_A_WORD_MAX = 16_383, 255
_PLACES = tuple(f":{place} " for place in range(1, 2_001))


def cut_words(text: str) -> list[str]:
    """The words of a text in their order: small letters without accents, and digits."""
    text = text[:TEXT_LENGTH_MAX]
    if text.isascii():
        raw = text.encode()
        words = raw.translate(_ASCII).decode().split()
        if _TOO_LONG in raw.translate(_ALIKE):
            words = [word[:WORD_LENGTH_MAX] for word in words]
        return words
    decomposed = unicodedata.normalize("NFKD", text)
    text = "".join([character for character in decomposed if not unicodedata.combining(character)])
    return [word[:WORD_LENGTH_MAX] for word in _WORD.findall(text.lower())]


def searchable(text: str) -> str:
    """A text as it goes into the full-text index."""
    return " ".join(cut_words(text))


def as_tsvector(text: str) -> str:
    """The same, as PostgreSQL writes a tsvector: each word with its place. To cut the words once more, as `to_tsvector`
    does, would cost the server twice as much, and it has ideas of its own about `1e5` and the like."""
    words = cut_words(text)
    if len(words) <= len(_PLACES):
        return "".join(chain.from_iterable(zip(words, _PLACES, strict=False)))
    # The server adds up words that come twice; but so many it may not take.
    places: dict[str, list[str]] = {}
    for place, word in enumerate(words, 1):
        of_word = places.setdefault(word, [])
        if len(of_word) < _PLACES_OF_A_WORD_MAX:
            of_word.append(str(min(place, _PLACE_MAX)))
    return " ".join([f"{word}:{','.join(of_word)}" for word, of_word in places.items()])
