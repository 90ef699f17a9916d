"""Ids of our own: short, sortable by time, safe in a URL, a shell and a header."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARACTERS = 9
_RANDOM_CHARACTERS = 7

ID_LENGTH = _TIME_CHARACTERS + _RANDOM_CHARACTERS
ID_RANDOM_BITS = 5 * _RANDOM_CHARACTERS


_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


def make_id(now_ms: int, random_bits: int) -> str:
    """Sixteen characters: nine of time, seven of `ID_RANDOM_BITS` random bits, which the caller draws."""
    number = now_ms << ID_RANDOM_BITS | random_bits & (1 << ID_RANDOM_BITS) - 1
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(5 * ID_LENGTH - 10, -1, -10)])
