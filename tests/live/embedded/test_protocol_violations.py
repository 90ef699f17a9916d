"""Clients that break the protocol: both brokers say the same to them, in the same words, and hang up alike.

REDRIVE_MISCHIEF_PRANKS and REDRIVE_MISCHIEF_SEED choose how many and which.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from rig.brokers import Vhost

from tests.live.embedded.protocol_violations import KINDS, Violation, make_violation
from tests.unit.embedded.threaded import broker_in_a_thread

VIOLATIONS = int(os.environ.get("REDRIVE_MISCHIEF_PRANKS", str(KINDS)))
FIRST_SEED = int(os.environ.get("REDRIVE_MISCHIEF_SEED", "1"))


@pytest.mark.live
def test_a_client_that_breaks_the_protocol_hears_the_same_from_both(vhost: Vhost) -> None:
    violations = {seed: make_violation(seed, vhost.profile) for seed in range(FIRST_SEED, FIRST_SEED + VIOLATIONS)}
    with broker_in_a_thread(vhost.profile) as (broker, _), ThreadPoolExecutor(16) as threads:

        def play(seed_and_violation: tuple[int, Violation]) -> str | None:
            seed, violation = seed_and_violation
            real, embedded = violation.play(vhost.amqp_url), violation.play(broker.url)
            if real != embedded:
                real = violation.play(vhost.amqp_url)  # a slow machine may have been taken for a silent broker
                embedded = violation.play(broker.url)
            return None if real == embedded else f"{seed} {violation.name}\n  real     {real}\n  embedded {embedded}"

        different = [text for text in threads.map(play, violations.items()) if text is not None]
    assert not different, f"{len(different)} of {VIOLATIONS} differ on {vhost.profile}\n" + "\n".join(different)
