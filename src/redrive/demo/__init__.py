"""The demonstration: a small shop whose orders go wrong in every way, and an account of each of them.

`shop` is the app, as a newcomer would write one; `lines` tells what happens while it does; `account` asks the broker
where everything is; `running` puts them on a broker, the embedded one or a real one.
"""

from redrive.demo.running import DemoFailed, run_demo

__all__ = ["DemoFailed", "run_demo"]
