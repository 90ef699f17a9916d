"""What a word is to full-text search, alike when a dead letter is stored and when somebody asks for it.

A word is a run of letters and digits; case and accents don't count (`STRASSE` is `straße`, `Zurich` is `Zürich`).
SQLite and PostgreSQL cut texts differently, so they are given words that were cut here.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from redrive.records.filters.terms import WordsTerm

WORD_LENGTH_MAX = 64
"""Longer words are found by their beginning: PostgreSQL refuses lexemes above 2 kB, and nobody types one."""
TEXT_LENGTH_MAX = 200_000
"""More of a text is not searched. PostgreSQL refuses an entry above 1 MB."""
POSITIONS_MAX = 16_381
"""Words after so many stand alone: no phrase has them. PostgreSQL counts no further."""
PLACES_OF_A_WORD_MAX = 255
"""More of one word are not remembered, by PostgreSQL, and so by nobody."""
GAP = "\u00aa"
"""Stands in the place of a word that is not remembered. No text is ever cut to it: it would be an `a`."""

_WORD = re.compile(r"[^\W_]+")
# Most texts are ASCII; a table cuts them in a quarter of the time of the expression.
_ASCII = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else ord(" ") for code in range(256))
# Another one makes all letters alike, to see at once whether any word is too long.
_ALIKE = bytes(ord(" ") if each == ord(" ") else ord("x") for each in _ASCII)
# One character becomes as many when it is taken apart.
_GROWTH_MAX = 18
_TOO_LONG = b"x" * (WORD_LENGTH_MAX + 1)


def cut_words(text: str) -> list[str]:
    """The words of a text in their order: folded letters without accents, and digits."""
    text = text[:TEXT_LENGTH_MAX]
    if text.isascii():
        raw = text.encode()
        words = raw.translate(_ASCII).decode().split()
        if _TOO_LONG in raw.translate(_ALIKE):
            words = [word[:WORD_LENGTH_MAX] for word in words]
        return words
    folded = _without_accents(_without_accents(text).casefold())
    return [word[:WORD_LENGTH_MAX] for word in _WORD.findall(folded[:TEXT_LENGTH_MAX])]


def indexed_words(text: str) -> list[str]:
    """The words of a text as the index remembers them: one for each place, `GAP` where none is."""
    words = cut_words(text)
    if len(words) <= PLACES_OF_A_WORD_MAX:
        return words
    if max(Counter(words).values()) > PLACES_OF_A_WORD_MAX:
        seen: Counter[str] = Counter()
        for place, word in enumerate(words):
            seen[word] += 1
            if seen[word] > PLACES_OF_A_WORD_MAX:
                words[place] = GAP
    if len(words) <= POSITIONS_MAX:
        return words
    alone = [part for word in words[POSITIONS_MAX:] if word != GAP for part in (GAP, word)]
    return words[:POSITIONS_MAX] + alone


def is_cut(text: str) -> bool:
    """Whether a text is too long for all of it to be searched."""
    if len(text) > TEXT_LENGTH_MAX or text.isascii() or len(text) * _GROWTH_MAX <= TEXT_LENGTH_MAX:
        return len(text) > TEXT_LENGTH_MAX
    return len(_without_accents(_without_accents(text).casefold())) > TEXT_LENGTH_MAX


def phrases_of(asked: WordsTerm) -> list[list[str]]:
    """Words that stand side by side: all of them in a phrase, the parts of one word such as `orders.created` else."""
    cut = [cut_words(word) for word in asked.words]
    if asked.is_phrase:
        whole = [part for parts in cut for part in parts]
        return [whole] if whole else []
    return [parts for parts in cut if parts]


def ends_open(asked: WordsTerm) -> bool:
    """Whether the last word of the last phrase is a beginning only."""
    return asked.is_prefix and bool(cut_words(asked.words[-1]))


def has_phrases(asked: WordsTerm, words: Sequence[str]) -> bool:
    """Whether a text with these words has all that is asked for, as if it were not negated. Without words to look for
    every text has them."""
    phrases = phrases_of(asked)
    is_open = ends_open(asked)
    return all(
        _has_phrase(phrase, words, is_open=is_open and number == len(phrases))
        for number, phrase in enumerate(phrases, 1)
    )


def words_of(text: str) -> tuple[str, ...]:
    """The words of a filter as people wrote them: runs of letters, digits and the accents on them, in lower case."""
    words, run = [], ""
    for character in f"{text.lower()} ":
        if character.isalnum() or (run and unicodedata.combining(character)):
            run += character
        elif run:
            words.append(run)
            run = ""
    return tuple(words)


def certain_words(pattern: str) -> tuple[str, ...]:
    """The words that stand in the text of whatever matches a value with `*`: those that no `*` touches."""
    first, *others = pattern.split("*")
    if not others:
        return tuple(cut_words(first))
    # A letter beside the star makes one word with whatever touches it.
    certain = cut_words(f"{first}x")[:-1]
    for part in others[:-1]:
        certain += cut_words(f"x{part}x")[1:-1]
    return (*certain, *cut_words(f"x{others[-1]}")[1:])


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join([each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each)])


def _has_phrase(phrase: list[str], words: Sequence[str], *, is_open: bool) -> bool:
    *before, last = phrase
    size = len(before)
    for place in range(size, len(words)):
        word = words[place]
        if (word.startswith(last) if is_open else word == last) and list(words[place - size : place]) == before:
            return True
    return False
