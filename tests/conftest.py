"""What every test may use: the rig's fixtures and mark (tests/rig/pytest_plugin.py), and pytest's own pytester."""

pytest_plugins = ("pytester", "tests.rig.pytest_plugin")
