"""Dead letters: stored, read, changed, exported.

`letter_rows` declares the columns, `incoming` writes rows, `batches` stores what was collected, `recurrences` decides
which row a redriven message that died again belongs to. Every status change goes through `transitions`, every count
through `counts`. `letters` is what people look at, `changes` what they do, `exports` the way into another store.
"""
