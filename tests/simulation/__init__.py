"""A simulation of whole systems: one seed is a broker, a declaration, apps, messages, handlers and everything that goes
wrong; at the end an auditor accounts for every message.

    python -m tests.simulation --seed 7 --verbose          one seed, told step by step
    python -m tests.simulation --seeds 0:20000 --workers 2

From the seed to the verdict: `declarations`, `consumers`, `workloads` and `scenarios` draw; `scripts` is what handlers
do, `errors` what they raise; `processes` are the apps, which can be killed; `books` are the broker's own, kept for the
auditor; `world` plays a scenario in virtual time, on one event loop; `expectations` is a second, small reading of what
the policy promises; `auditor` compares; `tally` adds seeds up. Nothing here knows the real time, or any randomness but
the seed's, so a seed that fails once fails always.
"""
