"""How many examples a Hypothesis test tries: what it asks for, a few in `make test-quick`, which is run often, and many
more in `make matrix`.

The matrix draws others each time. The other runs draw the same ones, so that a change that is refused is refused for
what it changed; what the matrix finds becomes an `@example`.
"""

import os

QUICK_VARIABLE = "REDRIVE_QUICK"
QUICK_MAX = 15
MATRIX_TIMES = 10
IS_QUICK = os.environ.get(QUICK_VARIABLE, "") not in ("", "0")
IS_MATRIX = os.environ.get("REDRIVE_MATRIX", "") not in ("", "0")


def examples(count: int) -> int:
    """For `settings(max_examples=…)`."""
    if IS_MATRIX:
        return count * MATRIX_TIMES
    return min(count, QUICK_MAX) if IS_QUICK else count
