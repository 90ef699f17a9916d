"""Dead letters: stored, read, changed, exported.

`letter_columns` declares the columns, `letter_rows` reads rows, `incoming` writes them, `stored_batches` stores what
was collected, `recurrences` decides which row a redriven message that died again belongs to. Every status change goes
through `transitions`, every count through `counts`. `letters` is what people look at, `changes` what they do, `exports`
the way into another store.
"""
