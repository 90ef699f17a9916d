"""Random mutants: small changes of the source, chosen by a seed, in every room. The tests must notice those that
matter.

`operators` says which changes there are, `sample` draws some of them, `line_coverage` knows which tests run which line,
`mutant_trial` runs those tests on a copy with one change in it, `judgements` says why survivors survive, `killers`
which test noticed a mutant last time, `report` prints the results.
`python -m tests.mutations.random_mutants` does it all.
"""
