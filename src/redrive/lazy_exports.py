"""Names that a package exports but imports only when they are first used, so that programs start fast.

A package that has such names writes them three times: imported below `if TYPE_CHECKING:`, which type checkers read; in
a table of names and their modules, which this module reads; and in `__all__`. tests/architecture compares the three.

    if TYPE_CHECKING:
        from redrive.shop.orders import Order
    else:
        __getattr__, __dir__ = lazy_exports(__name__, {"Order": "orders"})
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package; `homes` has the module of each name, relative to the package.

    A name is looked up once: afterwards it is an ordinary attribute of the package.
    """
    namespace = vars(sys.modules[package])

    def __getattr__(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(f"{package}.{home}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*namespace, *homes})

    return __getattr__, __dir__
