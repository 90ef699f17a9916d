"""The crash matrix of dead letters: collector, redriver, auto-retry, broker and database are killed at every step, and
every message is accounted for."""
