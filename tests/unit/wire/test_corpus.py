"""The fuzzers' seeds and kept inputs, replayed as ordinary tests."""

from pathlib import Path

import pytest

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"


@pytest.mark.parametrize("target", TARGETS)
def test_the_seeds_pass(target: str) -> None:
    for seed in seeds(target):
        TARGETS[target](seed)


@pytest.mark.parametrize("target", TARGETS)
def test_the_kept_corpus_passes(target: str) -> None:
    kept = sorted((CORPUS / target).iterdir())
    assert kept
    for path in kept:
        TARGETS[target](path.read_bytes())
