"""The clients that are compared: programs, each run in a process of its own; see `contract` for what they agree on."""
