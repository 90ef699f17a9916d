"""Drawn mutants: small changes of the source, chosen by a seed, in every room; the tests must notice those that matter.

`operators` says which changes there are, `drawing` chooses some of them, `covering` knows which tests run which line,
`trying` runs those tests on a copy with one change in it, `judgements` holds what people found out about survivors,
`report` tells. `python -m tests.mutations.drawn` does it all.
"""
