"""Hypothesis without its deadline: on a machine busy with brokers, a pause of 200 ms says nothing of the code."""

from hypothesis import settings

settings.register_profile("redrive", deadline=None)
settings.load_profile("redrive")
