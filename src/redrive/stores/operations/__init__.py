"""Operations: sending dead letters back, in batches, by the process that holds the operation's lease.

`operations` is what people ask for and look at, `frozen_selection` freezes which dead letters it takes, `runs` is what
its runner does: `claims` takes the next batch, `send_outcomes` records how it ended.
"""
