"""What is asked for a server's virtual machine."""

from dataclasses import replace

import pytest

from millpond.errors import BadOption
from millpond.model.devices import (
    Devices,
    Vnc,
    check_description,
    parse_devices,
    parse_vnc,
    parse_word,
)


@pytest.mark.parametrize(
    ("text", "vnc"),
    [
        ("auto", Vnc()),
        ("5901", Vnc(port=5901)),
        ("192.0.2.1:5901", Vnc(address="192.0.2.1", port=5901)),
        ("0.0.0.0:auto", Vnc(address="0.0.0.0")),
        ("[::1]:5900", Vnc(address="::1", port=5900)),
    ],
)
def test_displays(text, vnc):
    assert parse_vnc(text) == vnc
    assert parse_vnc(str(vnc)) == vnc


@pytest.mark.parametrize(
    "text", ["", "on", "80", "70000", "host:5901", "::1:5901", "1.2.3:5901", "127.0.0.1:", "-1"]
)
def test_what_is_no_display_is_refused(text):
    with pytest.raises(BadOption):
        parse_vnc(text)


@pytest.mark.parametrize("text", ["a\x1b[2J", "a\0", "a" * 5000])
def test_what_is_no_description_is_refused(text):
    with pytest.raises(BadOption):
        check_description(text)
    assert check_description("two\nlines") == "two\nlines"


@pytest.mark.parametrize("text", ["", "a b", "<x/>", "a'b"])
def test_what_is_no_word_is_refused(text):
    with pytest.raises(BadOption):
        parse_word("--cpu", text)


def test_what_is_asked_for_and_taken_back():
    nothing = {"vnc": "", "cpu": "", "video": "", "tpm": None, "secure_boot": None}
    assert parse_devices(**nothing) == {}
    asked = parse_devices(vnc="5901", cpu="host-model", video="none", tpm=True, secure_boot=None)
    devices = Devices(**asked)
    assert devices.facts() == [
        ("VNC", "127.0.0.1:5901"),
        ("CPU", "host-model"),
        ("Video", "none"),
        ("TPM", "2.0"),
    ]
    back = parse_devices(vnc="none", cpu="default", video="default", tpm=False, secure_boot=False)
    assert replace(devices, **back) == Devices()
