"""What every test may use: the rig's fixtures and mark (tests/rig/pytest_plugin.py), our own plugin's `broker`, and
pytest's own pytester."""

pytest_plugins = ("pytester", "redrive.testing", "tests.rig.pytest_plugin")
