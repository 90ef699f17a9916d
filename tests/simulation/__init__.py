"""A seeded simulation of whole systems. A seed gives a broker, a declaration, apps, messages, handlers and everything
that goes wrong; at the end an auditor accounts for every message.

    python -m tests.simulation --seed 7 --verbose          one seed, step by step
    python -m tests.simulation --seeds 0:20000 --workers 2

From the seed to the verdict:

    scenarios                     draws a scenario, with `declarations`, `consumer_options`, `workloads` (the messages)
                                  and `forged_headers` (publishers that copy headers)
    scripts, errors, runs         what handlers do and raise; one run of a handler
    processes                     the apps, which can be killed
    world                         plays a scenario in virtual time, on one event loop; `refusals` are copies that the
                                  broker refuses
    ledger                        what the broker did with every message, for the auditor
    expectations, auditor, tally  what policy and shape promise, written a second time; the comparison; the sum of seeds

Nothing here uses the real time, or any randomness but the seed's, so a seed that fails once fails always.
"""
