"""Ids of our own: short, sortable by time, safe in a URL, a shell and a header."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARACTERS = 9
_LUCK_CHARACTERS = 7

ID_LENGTH = _TIME_CHARACTERS + _LUCK_CHARACTERS
ID_RANDOM_BITS = 5 * _LUCK_CHARACTERS


_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


def make_id(now_ms: int, luck: int) -> str:
    """Sixteen characters: nine of time, seven of luck (`ID_RANDOM_BITS` random bits, the caller's)."""
    number = now_ms << ID_RANDOM_BITS | luck & (1 << ID_RANDOM_BITS) - 1
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(5 * ID_LENGTH - 10, -1, -10)])
