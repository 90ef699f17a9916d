"""Ids of our own: short, sortable by time, safe in a URL, a shell and a header."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARACTERS = 9
_LUCK_CHARACTERS = 7

ID_LENGTH = _TIME_CHARACTERS + _LUCK_CHARACTERS
LUCK_BITS = 5 * _LUCK_CHARACTERS


def make_id(now_ms: int, luck: int) -> str:
    """Sixteen characters: nine of time, seven of luck (`LUCK_BITS` random bits, the caller's)."""
    characters = []
    number = now_ms << LUCK_BITS | luck & (1 << LUCK_BITS) - 1
    for _ in range(ID_LENGTH):
        characters.append(_ALPHABET[number & 31])
        number >>= 5
    return "".join(reversed(characters))
