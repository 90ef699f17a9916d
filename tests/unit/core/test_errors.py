"""The tree of errors that core draws is the one there is."""

import pkgutil
import re
from importlib import import_module

import redrive
from redrive.core import InvalidInput, RedriveError, errors


def test_every_error_of_every_room_is_drawn_where_it_hangs() -> None:
    for module in pkgutil.walk_packages(redrive.__path__, "redrive."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    drawn = re.findall(r"(?m)^    [├└]── (\w+)", errors.__doc__ or "")
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == {one.__name__ for one in RedriveError.__subclasses__() if _is_ours(one)}


def test_what_an_author_has_written_is_refused_with_findings() -> None:
    drawn = re.findall(r"(?m)^    │   [├└]── (\w+)", errors.__doc__ or "")
    of_core = {one.__name__ for one in InvalidInput.__subclasses__() if one.__module__ == errors.__name__}
    assert set(drawn) == of_core


def _is_ours(error: type[RedriveError]) -> bool:
    return error.__module__.startswith("redrive.")
