"""What to break: the seeded bugs, one module for each part of the broker's semantics."""

from tests.mutations.bugs import deaths, exchanges, limits, outcomes, queues, restart, time, versions
from tests.mutations.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *exchanges.BUGS,
    *queues.BUGS,
    *deaths.BUGS,
    *time.BUGS,
    *limits.BUGS,
    *outcomes.BUGS,
    *versions.BUGS,
    *restart.BUGS,
)
"""Every seeded bug, in the order of the report."""
