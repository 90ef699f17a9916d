"""The kill matrix: a consumer killed with SIGKILL between any two commands, and every message accounted for."""
