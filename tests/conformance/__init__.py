"""Other people's test suites, run unmodified against the embedded broker and against a real one.

`suites` says which suites and which of their tests; `sources` brings one from its source distribution into the user's
cache folder; `brokers` starts what it runs against, `docker_engine` stands in for the Docker some of them ask for a
broker; `results` reads what pytest found and compares, `report` prints and keeps it. Nothing of theirs is in this
repository.

    python -m tests.conformance [SUITE…] [--profile 3.10] [--real]
"""
