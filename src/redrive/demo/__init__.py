"""The demonstration: a small shop whose orders go wrong in every way, and an account of each of them.

`shop` is the app, as a newcomer would write one; `lines` prints what happens; `account` asks the broker where every
order is; `demonstration` runs them on a broker, the embedded one or a real one.
"""

from redrive.demo.demonstration import DemoFailed, run_demo

__all__ = ["DemoFailed", "run_demo"]
