"""The schema, step by step: what each version adds, and how a database gets from its version to ours, alone.

A step is never changed once it is released; a change is a new step at the end of `STEPS`. All steps a database lacks
run in one transaction under a lock, so two processes that start at once are fine, and one that dies has changed
nothing.
"""

from redrive.stores.migrations.running import migrate_postgresql, migrate_sqlite
from redrive.stores.migrations.steps import STEPS, Step

__all__ = ["STEPS", "Step", "migrate_postgresql", "migrate_sqlite"]
