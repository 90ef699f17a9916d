"""The rig that starts real brokers and databases for tests and benchmarks."""
