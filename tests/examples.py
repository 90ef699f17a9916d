"""How many examples a Hypothesis test tries: what it asks for, or a few in `make test-quick`, which is run often."""

import os

QUICK_VARIABLE = "REDRIVE_QUICK"
QUICK_MAX = 15
IS_QUICK = os.environ.get(QUICK_VARIABLE, "") not in ("", "0")


def examples(count: int) -> int:
    """For `settings(max_examples=…)`."""
    return min(count, QUICK_MAX) if IS_QUICK else count
