"""Seeded bugs: proof that the embedded broker's tests notice when its semantics change.

`bugs` says what to break, `mutation` breaks it in a copy of the tree, `trial` runs the tests there, `report` prints the
results. `python -m tests.mutations` does it all.
"""
