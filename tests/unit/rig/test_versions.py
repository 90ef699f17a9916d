"""Which RabbitMQ versions the rig finds, how it names them, and which it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig.available_brokers import list_available
from rig.versions import (
    Installation,
    cache_folder,
    choose_installations,
    find_installations,
    installed_version,
    label_of,
    profile_of,
)


def install(root: Path, version: str) -> Path:
    (root / "usr/lib/rabbitmq/lib" / f"rabbitmq_server-{version}").mkdir(parents=True)
    return root


@pytest.mark.parametrize(("version", "label"), [("3.10.8", "3.10"), ("4.0.5-9", "4.0"), ("4.3", "4.3")])
def test_a_label_is_major_and_minor(version: str, label: str) -> None:
    assert label_of(version) == label


@pytest.mark.parametrize(
    ("label", "profile"),
    [
        ("3.10", "3.10"),
        ("3.12", "3.10"),
        ("4.0", "4.0"),
        ("4.2", "4.0"),
        ("4.3", "4.3"),
        ("5.0", "4.3"),
        ("3.9", "3.10"),
    ],
)
def test_a_broker_behaves_like_the_newest_known_version_not_newer_than_it(label: str, profile: str) -> None:
    assert profile_of(label) == profile


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(ValueError, match="'unstable' is not a RabbitMQ version"):
        label_of("unstable")


def test_the_newest_version_under_a_root_is_the_installed_one(tmp_path: Path) -> None:
    assert installed_version(tmp_path) is None
    install(tmp_path, "3.9.1")
    install(tmp_path, "3.10.8")
    assert installed_version(tmp_path) == "3.10.8"


def test_the_distribution_and_every_finished_chroot_are_found(tmp_path: Path) -> None:
    host, cache = install(tmp_path / "host", "3.10.8"), tmp_path / "cache"
    install(cache / "4.3", "4.3.6")
    install(cache / "building-4.0-17", "4.0.5")

    found = find_installations(cache, host=host)

    assert [(each.label, each.version, each.root) for each in found] == [
        ("3.10", "3.10.8", host),
        ("4.3", "4.3.6", cache / "4.3"),
    ]


def test_each_known_version_is_taken_once_and_the_distribution_has_precedence() -> None:
    host = Installation(version="4.0.5", root=Path("/"))
    chroots = [
        Installation(version="3.10.8", root=Path("/c/3.10")),
        Installation(version="4.0.5", root=Path("/c/4.0")),
        Installation(version="4.3.6", root=Path("/c/4.3")),
    ]
    assert choose_installations([host, *chroots]) == [chroots[0], host, chroots[2]]


def test_another_version_stands_in_only_where_the_known_one_is_not() -> None:
    ubuntu = Installation(version="3.12.1", root=Path("/"))
    bookworm = Installation(version="3.10.8", root=Path("/c/3.10"))
    assert choose_installations([ubuntu]) == [ubuntu]
    assert choose_installations([ubuntu, bookworm]) == [bookworm]


def test_a_stand_in_does_not_hide_that_the_version_is_missing() -> None:
    ubuntu = Installation(version="3.12.1", root=Path("/"))
    available = list_available([ubuntu], {"3.10": "not packaged", "4.0": "no mirror", "4.3": "no mirror"})
    assert available.sources_for("3.10") == [ubuntu]
    assert available.sources_for("4.0") == []
    assert available.missing == {
        "3.10": "not packaged (3.12.1 stands in for it)",
        "4.0": "no mirror",
        "4.3": "no mirror",
    }


def test_the_cache_is_where_the_user_keeps_caches() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/elsewhere"}) == Path("/elsewhere/redrive/rig")
    assert cache_folder({}) == Path.home() / ".cache/redrive/rig"
    # The XDG specification: a path that is not absolute is to be ignored.
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/redrive/rig"


def test_a_chroot_is_entered_in_a_mount_namespace_of_its_own() -> None:
    shared = Path("/shared/tmp")
    plain = Installation(version="3.10.8", root=Path("/")).command("epmd", "-port", "1", shared=shared)
    assert plain == ["epmd", "-port", "1"]
    entered = Installation(version="4.3.6", root=Path("/c/4.3")).command("epmd", "-port", "1", shared=shared)
    assert entered[:5] == ["unshare", "--mount", "--propagation", "private", "sh"]
    assert entered[-5:] == ["/c/4.3", "/shared/tmp", "epmd", "-port", "1"]
