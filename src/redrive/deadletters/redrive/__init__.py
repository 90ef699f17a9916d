"""Redriving: copies of stored dead letters go back to the queue they failed in, or to another target.

`redrive_service` plans and starts operations (`preflight` looks at their targets), `redriver` runs them
(`operation_run`, one batch after the other), `copies` says what a copy carries, `witness` finds out after a
crash which in-doubt copies arrived, and `auto_retry` starts operations by rule.
"""
