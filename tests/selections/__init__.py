"""Whatever a store does to be quick, a filter selects what `records.matches` says: in pages, counts, frozen selections,
deletions and the API, on both databases, with data that strangers might send.

    python -m tests.selections --pairs 100000          (letter, filter) pairs on SQLite and PostgreSQL
    python -m tests.selections --pairs 5000 --seed 7   the same again

`letters` and `filters` make the data from a seed, `auditor` compares.
"""
