"""How the rig becomes root: it is already, or sudo lets it without asking for a password.

Installing packages, making chroots and entering them need root. A test run must never stop to ask for a password, so
only `sudo -n` is used; after `sudo -v` in the same terminal that works for a while too.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

NO_ROOT_HINT = "run as root, or let sudo work without a password (sudo -v first is enough)"


@functools.cache
def root_prefix() -> tuple[str, ...] | None:
    """What to put before a command that needs root, or None when nothing would help."""
    if os.geteuid() == 0:
        return ()
    if shutil.which("sudo") is None:
        return None
    probe = subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    return ("sudo", "-n") if probe.returncode == 0 else None
