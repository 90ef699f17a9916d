"""What a broker tells of a queue or exchange that is not as somebody declares it: the first setting that differs.

AMQP can't read settings. To declare what exists changes nothing, and the refusal (406) says what the setting is now;
said like that the next time, the next difference comes up.
"""

import re
from dataclasses import dataclass

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']*)' for .*?: received (?P<wanted>.*?) but current is (?P<found>.*)", re.DOTALL
)
_TYPED = re.compile(r"the value '(?P<value>.*)' of type '(?P<type>\w+)'", re.DOTALL)
_WHOLE_NUMBERS = ("signedint", "unsignedint", "long", "short", "unsignedshort", "byte", "unsignedbyte", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldSetting:
    """A setting of an object as the broker has it, None if it is not set; both sides as text, for people."""

    name: str
    value: str | int | float | bool | None
    text: str
    wanted_text: str

    def learn(self, flags: dict[str, bool], arguments: dict[str, object]) -> bool:
        """Says from now on what the broker said; whether that can be said."""
        if self.name in flags:
            flags[self.name] = self.value == "true"
        elif self.value is None:
            return arguments.pop(self.name, None) is not None
        else:
            arguments[self.name] = self.value
        return True


def read_told(text: str) -> ToldSetting | None:
    """What a broker's 406 says that an object has; None where it says something else."""
    match = _INEQUIVALENT.search(text)
    if match is None:
        return None
    found = match["found"].strip()
    typed = _TYPED.fullmatch(found)
    plain = _plain(found)
    value = _typed(typed["value"], typed["type"]) if typed is not None else (None if found == "none" else plain)
    return ToldSetting(name=match["argument"], value=value, text=plain, wanted_text=_plain(match["wanted"]))


def _typed(value: str, kind: str) -> str | int | float | bool:
    try:
        if kind in _WHOLE_NUMBERS:
            return int(value)
        if kind in ("double", "float"):
            return float(value)
    except ValueError:
        return value
    return value == "true" if kind == "bool" else value


def _plain(said: str) -> str:
    """`the value '5000' of type 'signedint'` and `'5000'` are 5000; `none` is "not set"."""
    typed = _TYPED.fullmatch(said.strip())
    text = typed["value"] if typed else said.strip()
    if text == "none":
        return "not set"
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == "'" else text
