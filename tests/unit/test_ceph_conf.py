"""The monitors and the keyrings of a cluster, from its configuration file."""

import pytest

from millpond.errors import BadOption
from millpond.system.ceph_conf import files, monitors


@pytest.fixture
def conf(tmp_path):
    path = tmp_path / "ceph.conf"

    def write(text):
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10.0.0.1", [("10.0.0.1", None)]),
        ("10.0.0.1:6789, 10.0.0.2:6789", [("10.0.0.1", 6789), ("10.0.0.2", 6789)]),
        ("a.example b.example", [("a.example", None), ("b.example", None)]),
        ("v2:10.0.0.1:3300/0", [("10.0.0.1", 3300)]),
        (
            "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0],[v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]",
            [("10.0.0.1", 3300), ("10.0.0.2", 3300)],
        ),
        ("[2001:db8::1]:3300,[2001:db8::2]", [("2001:db8::1", 3300), ("2001:db8::2", None)]),
        ("[v2:[2001:db8::1]:3300/0,v1:[2001:db8::1]:6789/0]", [("2001:db8::1", 3300)]),
    ],
)
@pytest.mark.parametrize("name", ["mon_host", "mon host", "mon-host"])
def test_every_way_to_write_monitors(conf, name, value, expected):
    path = conf(
        f"# of the cluster\n[global]\n  fsid = x\n  {name} = {value}\n[client]\nkeyring = k\n"
    )
    assert list(monitors(path)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[global]\nfsid = x\n", "it names no monitor"),
        ("[global]\nmon_host = ;\n", "it names no monitor"),
        ("mon_host = 1\n", "cannot be read"),
        ("[global]\nmon_host = v2:a:b:c\n", "'v2:a:b:c' is no address"),
        ("\0", "cannot be read"),
    ],
)
def test_what_names_no_monitor_is_refused(conf, text, reason):
    with pytest.raises(BadOption, match=reason):
        monitors(conf(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadOption, match=r"images_rbd_ceph_conf.*nothing: No such file"):
        monitors(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "keyrings"),
    [
        (
            "[client.cinder]\nkeyring = /a/$cluster.$name\n[client]\nkeyring = /b",
            ["/a/ceph.client.cinder"],
        ),
        (
            "[client]\nkeyring = /b/$id, /c/$type\n[global]\nkeyring = /d",
            ["/b/cinder", "/c/client"],
        ),
        ("[global]\nkeyring = /d", ["/d"]),
        (
            "[global]",
            [
                "/etc/ceph/ceph.client.cinder.keyring",
                "/etc/ceph/ceph.keyring",
                "/etc/ceph/keyring",
            ],
        ),
    ],
)
def test_a_client_opens_the_configuration_and_the_keyring_of_its_user(conf, text, keyrings):
    path = conf(text)
    assert [str(each) for each in files(path, "cinder")] == [str(path), *keyrings]
