"""Finding the dead letters that a filter asks for.

`filter_sql` splits a filter by what answers it and writes the SQL, `index_choice` picks the index, `walk` goes through
the letters a step at a time, `full_text` is the word index. What no index answers is looked up in contents:
`content_checks` says how, `offload` where (a thread or `filter_process`), `budgets` for how long.
"""
