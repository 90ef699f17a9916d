"""What the API under /api/v1 answers and takes, as models with examples: the OpenAPI document is made of them.

The conversions themselves are `redrive.records`' (`letter_json` …), shared with the command line; a model says what is
in them and refuses what is not.
"""
