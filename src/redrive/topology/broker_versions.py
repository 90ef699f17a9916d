"""The RabbitMQ versions that Redrive distinguishes.

Three stand for all: 3.10, 4.0 and 4.3 were measured, and a change between two of them is dated with the first one that
has it. A version in between is taken to behave like the measured one below it.
"""

import re
from enum import Enum


class BrokerVersion(Enum):
    """A measured version; ordered by age, `BrokerVersion("4.0")` from its written form."""

    V3_10 = "3.10"
    V4_0 = "4.0"
    V4_3 = "4.3"

    @classmethod
    def of(cls, server_version: str) -> "BrokerVersion":
        """The measured version that a server's own ("3.12.4", "4.1.0-rc.1") behaves like; the oldest if it is older."""
        found = re.match(r"(\d+)\.(\d+)", server_version)
        numbers = (int(found[1]), int(found[2])) if found else (0, 0)
        return max((one for one in cls if _numbers(one) <= numbers), default=cls.V3_10)

    def __str__(self) -> str:
        return self.value

    def __lt__(self, other: "BrokerVersion") -> bool:
        return _numbers(self) < _numbers(other)

    def __le__(self, other: "BrokerVersion") -> bool:
        return _numbers(self) <= _numbers(other)

    def __gt__(self, other: "BrokerVersion") -> bool:
        return _numbers(self) > _numbers(other)

    def __ge__(self, other: "BrokerVersion") -> bool:
        return _numbers(self) >= _numbers(other)


def _numbers(version: BrokerVersion) -> tuple[int, ...]:
    # As numbers, so that a 4.10 would come after 4.3.
    return tuple(int(part) for part in version.value.split("."))
