"""Two instances of `redrive serve` on one PostgreSQL, asked 200 times a second while they collect and redrive, one of
them killed in the middle: every message is accounted for, every request timed.

`python -m tests.live.admin.two_instances` plays it in full size; a test plays a small one.
"""
