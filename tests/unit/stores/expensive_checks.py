"""A large content, checks of it that take long, and limits that stop none of them."""

import json

from redrive.records import BodyTerm, MessageContent
from redrive.stores.search.content_checks import Check, CheckLimits

ENDLESS = CheckLimits(piece_cost=1 << 60, letter_cost=1 << 60)
LARGE = MessageContent(properties=b"", body=json.dumps({"a": [[n, f"v{n}"] for n in range(20_000)]}).encode())
EXPENSIVE: tuple[Check, ...] = tuple(BodyTerm(path=("a", "*", "1"), value=f"zz{n}*", negated=True) for n in range(20))
