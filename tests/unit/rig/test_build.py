"""Building: what fails is said and does not stop the rest, what is unfinished is never taken for finished."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from rig import __main__ as rig
from rig import apt
from rig import build as building
from rig.apt import AptFailed
from rig.privilege import NO_ROOT_HINT
from rig.versions import LABELS, find_installations, reason_file

VERSIONS = {"bookworm": "3.10.8", "trixie": "4.0.5", "forky": "4.3.6"}


class FakeApt:
    """apt and mmdebstrap of a Debian machine whose own RabbitMQ is 3.10, on folders of a test."""

    def __init__(self, host: Path) -> None:
        self.host = host
        self.candidate: str | None = "3.10.8-1"
        self.mirror: str | None = "mirror:debian"
        self.versions = dict(VERSIONS)
        self.interrupted = ""
        self.chroots_made: list[str] = []

    def install(self, packages: Sequence[str]) -> None:
        if "rabbitmq-server" in packages and self.candidate is not None:
            make_rabbitmq(self.host, self.candidate.partition("-")[0])

    def as_root(self, argv: Sequence[str], *, timeout_s: float, text: str | None = None) -> None:
        if "mmdebstrap" in argv:
            suite, folder, mirror = argv[-3:]
            assert mirror == self.mirror
            if suite not in self.versions:
                raise AptFailed(f"no {suite} on the mirror")
            make_rabbitmq(Path(folder), self.versions[suite])
            self.chroots_made.append(suite)
            if suite == self.interrupted:
                raise KeyboardInterrupt
        elif argv[0] == "mv":
            os.rename(argv[-2], argv[-1])
        elif argv[0] == "rm":
            os.rename(argv[-1], self.host / Path(argv[-1]).name)
        else:
            raise AssertionError(f"unexpected: {argv}")


@pytest.fixture
def fake_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApt:
    fake = FakeApt(tmp_path / "host")
    monkeypatch.setattr(apt, "is_here", lambda: True)
    monkeypatch.setattr(apt, "update", lambda: None)
    monkeypatch.setattr(apt, "candidate_version", lambda _package: fake.candidate)
    monkeypatch.setattr(apt, "debian_mirror", lambda: fake.mirror)
    monkeypatch.setattr(apt, "install", fake.install)
    monkeypatch.setattr(apt, "as_root", fake.as_root)
    monkeypatch.setattr(building, "root_prefix", lambda: ())
    return fake


def make_rabbitmq(root: Path, version: str) -> None:
    (root / "usr/lib/rabbitmq/lib" / f"rabbitmq_server-{version}").mkdir(parents=True)


def found(cache: Path, fake: FakeApt) -> dict[str, Path]:
    return {each.label: each.root for each in find_installations(cache, host=fake.host)}


def test_the_distributions_own_version_is_installed_and_the_others_get_a_chroot(
    tmp_path: Path, fake_apt: FakeApt
) -> None:
    said: list[str] = []
    assert building.build(LABELS, cache=tmp_path, say=said.append, host=fake_apt.host) == []
    assert found(tmp_path, fake_apt) == {"3.10": fake_apt.host, "4.0": tmp_path / "4.0", "4.3": tmp_path / "4.3"}

    said.clear()
    assert building.build(LABELS, cache=tmp_path, say=said.append, host=fake_apt.host) == []
    assert said == [], "nothing to do is nothing to say"
    assert fake_apt.chroots_made == ["trixie", "forky"]


def test_on_another_debian_the_distribution_serves_the_version_it_has(tmp_path: Path, fake_apt: FakeApt) -> None:
    fake_apt.candidate = "4.0.5-9"
    assert building.build(LABELS, cache=tmp_path, say=print, host=fake_apt.host) == []
    assert found(tmp_path, fake_apt) == {"3.10": tmp_path / "3.10", "4.0": fake_apt.host, "4.3": tmp_path / "4.3"}


def test_a_version_that_fails_is_returned_with_its_reason_and_the_others_are_built(
    tmp_path: Path, fake_apt: FakeApt
) -> None:
    del fake_apt.versions["trixie"]
    unavailable = building.build(LABELS, cache=tmp_path, say=print, host=fake_apt.host)
    assert [(each.label, each.reason) for each in unavailable] == [("4.0", "no trixie on the mirror")]
    assert set(found(tmp_path, fake_apt)) == {"3.10", "4.3"}
    assert reason_file(tmp_path, "4.0").read_text() == "no trixie on the mirror\n"

    fake_apt.versions["trixie"] = "4.0.5"
    assert building.build(LABELS, cache=tmp_path, say=print, host=fake_apt.host) == []
    assert not reason_file(tmp_path, "4.0").exists()


def test_a_suite_that_moved_on_is_named_and_its_chroot_is_not_built_again(tmp_path: Path, fake_apt: FakeApt) -> None:
    fake_apt.versions["forky"] = "4.4.1"
    for _ in range(2):
        unavailable = building.build(["4.3"], cache=tmp_path, say=print, host=fake_apt.host)
        assert [(each.label, each.reason) for each in unavailable] == [("4.3", "Debian forky now has 4.4.1")]
    assert fake_apt.chroots_made == ["forky"]
    assert set(found(tmp_path, fake_apt)) == {"4.4"}


def test_an_interrupted_chroot_is_not_found_and_is_built_again(tmp_path: Path, fake_apt: FakeApt) -> None:
    fake_apt.interrupted = "forky"
    with pytest.raises(KeyboardInterrupt):
        building.build(["4.3"], cache=tmp_path, say=print, host=fake_apt.host)
    assert list(tmp_path.glob("building-4.3-*"))
    assert found(tmp_path, fake_apt) == {}

    fake_apt.interrupted = ""
    fake_apt.host.mkdir()
    assert building.build(["4.3"], cache=tmp_path, say=print, host=fake_apt.host) == []
    assert found(tmp_path, fake_apt) == {"4.3": tmp_path / "4.3"}
    assert not list(tmp_path.glob("building-*"))


def test_of_two_builders_one_works_and_the_other_waits_for_it(tmp_path: Path, fake_apt: FakeApt) -> None:
    results: list[object] = []

    def work() -> None:
        results.append(building.build(LABELS, cache=tmp_path, say=lambda _: None, host=fake_apt.host))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [[], []]
    assert fake_apt.chroots_made == ["trixie", "forky"]


def test_without_a_debian_mirror_the_distributions_own_package_stands_in(tmp_path: Path, fake_apt: FakeApt) -> None:
    fake_apt.mirror, fake_apt.candidate = None, "3.12.1-1ubuntu1"
    unavailable = building.build(LABELS, cache=tmp_path, say=print, host=fake_apt.host)
    assert [each.label for each in unavailable] == ["3.10", "4.0", "4.3"]
    assert all("not configured with a Debian mirror" in each.reason for each in unavailable)
    assert found(tmp_path, fake_apt) == {"3.12": fake_apt.host}


def test_without_apt_or_root_nothing_is_tried(
    tmp_path: Path, fake_apt: FakeApt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "root_prefix", lambda: None)
    unavailable = building.build(["4.0"], cache=tmp_path, say=print, host=fake_apt.host)
    assert [each.reason for each in unavailable] == [f"it needs root: {NO_ROOT_HINT}"]
    monkeypatch.setattr(apt, "is_here", lambda: False)
    unavailable = building.build(["4.0"], cache=tmp_path, say=print, host=fake_apt.host)
    assert [each.reason for each in unavailable] == ["there is no apt-get on this machine"]
    assert fake_apt.chroots_made == []


class TestTheBuildCommand:
    @pytest.fixture(autouse=True)
    def bare_machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.delenv("REDRIVE_TEST_URLS", raising=False)
        monkeypatch.setattr(apt, "is_here", lambda: False)
        monkeypatch.setattr(building, "_lacking", lambda labels, _cache, _host: list(labels))
        monkeypatch.setattr(rig, "build_postgres", lambda _say: None)

    def test_says_what_to_do_when_there_is_no_version_at_all(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(rig, "find_installations", lambda _cache: [])
        assert rig.main(["build"]) == 2
        missing, what_to_do = capsys.readouterr().err.splitlines()
        assert "RabbitMQ 3.10, 4.0, 4.3 can't be had" in missing
        assert what_to_do.startswith("rig: There is no RabbitMQ to run the live tests on: run ")

    def test_is_content_with_one_version_and_names_the_others(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(rig, "find_installations", lambda _cache: ["something"])
        assert rig.main(["build", "4.0"]) == 0
        assert "!!! RabbitMQ 4.0 can't be had and will not be tested" in capsys.readouterr().err

    def test_has_nothing_to_do_when_brokers_are_named(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("REDRIVE_TEST_URLS", "amqp://localhost")
        assert rig.main(["build"]) == 0
        assert capsys.readouterr().err == ""

    def test_refuses_a_version_it_does_not_know(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            rig.main(["build", "3.9"])
        assert ended.value.code == 2
        assert "the rig knows 3.10, 4.0, 4.3, not 3.9" in capsys.readouterr().err
