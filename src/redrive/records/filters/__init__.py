"""Filters: which dead letters somebody means.

`terms` are the values, `grammar` reads a text (`lexer` cuts it, `values` reads moments and numbers, `filter_problems`
says what is wrong), `writing` writes it again, `matching` says what a filter means.
"""
