"""Reads RabbitMQ's 406 for a declare that differs from what exists: which argument differs, and its current value.

AMQP has no method to read a queue's arguments. Declaring a queue or exchange that exists changes nothing, and the
broker's refusal (406, "inequivalent arg") names the first argument or flag that differs and its current value. Declared
again with that value, the next difference comes up.
"""

import re
from dataclasses import dataclass

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']*)' for .*?: received (?P<wanted>.*?) but current is (?P<found>.*)", re.DOTALL
)
_TYPED = re.compile(r"the value '(?P<value>.*)' of type '(?P<type>\w+)'", re.DOTALL)
_WHOLE_NUMBERS = ("signedint", "unsignedint", "long", "short", "unsignedshort", "byte", "unsignedbyte", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentMismatch:
    """An argument (or flag, as `durable`) that differs: its current value, None if not set; both values as text."""

    name: str
    value: str | int | float | bool | None
    text: str
    wanted_text: str

    def adopt(self, flags: dict[str, bool], arguments: dict[str, object]) -> bool:
        """Writes the broker's value into the `flags` and `arguments` of the next declare.

        False if that changes nothing: the broker has no such argument, and neither has the declare.
        """
        if self.name in flags:
            flags[self.name] = self.value == "true"
        elif self.value is None:
            return arguments.pop(self.name, None) is not None
        else:
            arguments[self.name] = self.value
        return True


def read_argument_mismatch(text: str) -> ArgumentMismatch | None:
    """The mismatch in the text of a 406; None where the text says something else."""
    match = _INEQUIVALENT.search(text)
    if match is None:
        return None
    found = match["found"].strip()
    typed = _TYPED.fullmatch(found)
    plain = _plain(found)
    value = _typed(typed["value"], typed["type"]) if typed is not None else (None if found == "none" else plain)
    return ArgumentMismatch(name=match["argument"], value=value, text=plain, wanted_text=_plain(match["wanted"]))


def _typed(value: str, kind: str) -> str | int | float | bool:
    try:
        if kind in _WHOLE_NUMBERS:
            return int(value)
        if kind in ("double", "float"):
            return float(value)
    except ValueError:
        return value
    return value == "true" if kind == "bool" else value


def _plain(quoted: str) -> str:
    """`the value '5000' of type 'signedint'` and `'5000'` are 5000; `none` is "not set"."""
    typed = _TYPED.fullmatch(quoted.strip())
    text = typed["value"] if typed else quoted.strip()
    if text == "none":
        return "not set"
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == "'" else text
