"""A service can tell that a request is ours, unchanged and fresh."""

import pytest

from redrive.runtime.push import InvalidPush, PushTarget, is_signed, read_secrets, sign

SECRET = b"0123456789abcdef0123456789abcdef"
NOW_S = 1_767_268_800


def test_a_signature_is_what_openssl_says_it_is() -> None:
    # printf '1767268800.{"n":1}' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
    expected = "t=1767268800,v1=24aa5fa417ddaec138542ea919067ecbe0e2f5e0bba5529f61ea91940b13b0d9"
    signed = sign(b'{"n":1}', [SECRET], now_s=NOW_S)
    assert signed == expected


def test_a_signed_body_is_accepted_and_nothing_else() -> None:
    header = sign(b"body", [SECRET], now_s=NOW_S)
    assert is_signed(header, b"body", SECRET, now_s=NOW_S + 299)
    assert not is_signed(header, b"body", SECRET, now_s=NOW_S + 301)
    assert not is_signed(header, b"body", SECRET, now_s=NOW_S - 301)
    assert not is_signed(header, b"b0dy", SECRET, now_s=NOW_S)
    assert not is_signed(header, b"body", b"another secret, as long as this", now_s=NOW_S)
    assert not is_signed(header.replace(str(NOW_S), str(NOW_S + 1)), b"body", SECRET, now_s=NOW_S)


@pytest.mark.parametrize(
    "header", ["", "t=", "v1=00", "t=x,v1=00", "t=1,t=2,v1=0", "t=1767268800", "t=1767268800,v1=ü"]
)
def test_nonsense_is_no_signature(header: str) -> None:
    assert not is_signed(header, b"body", SECRET, now_s=NOW_S)


def test_while_a_secret_is_changed_both_are_right() -> None:
    old, new = read_secrets("new secret, long enough\n\n  old secret, long enough \n", source="secret.txt")[::-1]
    header = sign(b"body", [new, old], now_s=NOW_S)
    assert is_signed(header, b"body", old, now_s=NOW_S)
    assert is_signed(header, b"body", new, now_s=NOW_S)


def test_a_target_shows_no_secret_anywhere() -> None:
    target = PushTarget(
        url="https://user:pass-w0rd@host:8443/hook?token=t0ken",
        secrets=(SECRET,),
        headers=(("authorization", "Bearer t0ken"),),
    )
    for shown in (repr(target), str(target), target.shown):
        for secret in ("pass-w0rd", "t0ken", SECRET.decode()):
            assert secret not in shown
    assert target.shown == "https://host:8443/hook"


@pytest.mark.parametrize(
    "url", ["", "localhost:3000", "ftp://host/", "http://", "http://h:99999/", "http://h/a b", "http://[::1"]
)
def test_an_address_nobody_can_post_to_is_refused(url: str) -> None:
    with pytest.raises(InvalidPush, match="write it like http://"):
        PushTarget(url=url)


def test_a_short_secret_and_a_header_of_ours_are_refused_without_repeating_them() -> None:
    with pytest.raises(InvalidPush, match="shorter than 16 bytes") as refused:
        PushTarget(url="http://h/", secrets=(b"hunter2",))
    assert "hunter2" not in str(refused.value)
    for name in ("x-redrive-queue", "Content-Length", "a b", ""):
        with pytest.raises(InvalidPush, match="the header"):
            PushTarget(url="http://h/", headers=((name, "x"),))
    with pytest.raises(InvalidPush, match="the header") as refused:
        PushTarget(url="http://h/", headers=(("authorization", "Bearer s3cret\r\nx: y"),))
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "\n", "  \n\t\n"])
def test_a_source_without_a_secret_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidPush, match=r"^secret\.txt is empty, and requests would go unsigned; make one with: "):
        read_secrets(text, source="secret.txt")


def test_a_secret_that_is_too_short_is_refused_by_its_place_and_not_shown() -> None:
    with pytest.raises(InvalidPush) as refused:
        read_secrets("long enough to be a secret\nhunter2\n", source="secret.txt")
    assert str(refused.value).startswith("secret.txt: secret 2 is shorter than 16 bytes; ")
    assert "hunter2" not in str(refused.value)
