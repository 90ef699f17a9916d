"""`did you mean …?`: the nearest known word to an unknown one."""

from collections.abc import Iterable
from difflib import get_close_matches

_WORD_LENGTH_MAX = 64  # difflib is quadratic in the word's length; nobody misspells a longer key


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint naming the nearest known word, or all of them if none is near; empty if there are none."""
    words = sorted(known)
    near = get_close_matches(word[:_WORD_LENGTH_MAX].lower(), words, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"known here: {', '.join(words)}" if words else ""
