"""What `/api/v1` takes and answers, as pydantic models with examples. The OpenAPI document is made of them.

`redrive.records` converts records to JSON (`letter_json` …), shared with the command line. A model describes the result
and forbids other fields.
"""
