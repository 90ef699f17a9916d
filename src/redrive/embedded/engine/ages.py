"""How streams write a length of time: a number and one letter, `1h` or `7D`."""

import re

from redrive.embedded.engine.profiles import Profile
from redrive.embedded.engine.refusals import Refusal

_AGE = re.compile(r"([0-9]+)(Y|M|D|h|m|s)")
_SECONDS = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}


def read_age_ms(text: str, profile: Profile) -> int | None:
    """`1h` and the like, None for what is none; 3.10 and 4.0 fail on what does not begin with a digit (541)."""
    match = _AGE.fullmatch(text)
    if match is not None and int(match[1]):
        return int(match[1]) * _SECONDS[match[2]] * 1000
    if profile.garbled_age_is_internal_error and not text[:1].isdigit():
        raise Refusal(541)
    return None
