"""What cloud-init makes of a server: its own reader, and a Debian cloud image that boots."""

import json
import re
import subprocess

import pytest

USER_DATA = """\
#cloud-config
runcmd:
  - echo "USER DATA RAN ON $(hostname)" > /dev/ttyS0
  - echo "KEYS $(cat /home/debian/.ssh/authorized_keys | cut -d ' ' -f 3)" > /dev/ttyS0
  - echo "MACHINE $(cat /etc/machine-id)" > /dev/ttyS0
  - echo "HOST KEY $(cut -d ' ' -f 2 /etc/ssh/ssh_host_ed25519_key.pub)" > /dev/ttyS0
"""

READER = """\
import json, sys
from cloudinit.sources.helpers import openstack
found = openstack.ConfigDriveReader("/drive").read_v2()
networks = openstack.convert_net_json(found["networkdata"], known_macs={each: f"eth{number}"
    for number, each in enumerate(sys.argv[1:])})
print(json.dumps({
    "version": found["version"], "metadata": found["metadata"], "userdata":
    found["userdata"].decode(), "vendordata": found["vendordata"], "networks": networks,
}, default=str))
"""


@pytest.fixture
def guest(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    return millpond


@pytest.fixture
def key(workdir):
    path = workdir / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me@here", "-f", path], check=True
    )
    return path


@pytest.fixture(scope="session")
def cloud_root(cloud_image, session_directory):
    """The file system of the cloud image, with cloud-init in it."""
    root = session_directory / "cloud-root"
    root.mkdir()
    subprocess.run(["tar", "-xzf", cloud_image.with_name("root.tar.gz"), "-C", root], check=True)
    return root


def read_by_cloud_init(root, millpond, server):
    """What its reader says of a server's drive, which isoinfo unpacks."""
    (disk,) = [each for each in server["disks"] if each["role"] == "disk.config"]
    drive = millpond.disks / disk["volume"]
    macs = [each["mac"] for each in server["networks"]]
    unpacked = root / "drive"
    for path in ("meta_data.json", "network_data.json", "vendor_data.json", "user_data"):
        target = unpacked / "openstack/latest" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        words = ["isoinfo", "-R", "-i", drive, "-x", f"/openstack/latest/{path}"]
        content = subprocess.run(words, capture_output=True, check=True).stdout
        target.write_bytes(content)
    done = subprocess.run(
        ["chroot", root, "python3", "-c", READER, *macs],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cloud_inits_reader_takes_the_drive_of_every_server(guest, workdir, key, cloud_root):
    (workdir / "data").write_text(USER_DATA)
    words = ("--ssh-key", f"{key}.pub", "--user-data", workdir / "data", "--no-start")
    made = guest.json("server", "create", "My Web", "--image", "guest", "--memory", "16M", *words)
    found = read_by_cloud_init(cloud_root, guest, made)
    assert found["version"] == 2
    assert found["metadata"]["instance-id"] == made["id"]
    assert found["metadata"]["local-hostname"] == "my-web"
    (public,) = found["metadata"]["public_keys"].values()
    assert public == key.with_name("key.pub").read_text().strip()
    assert found["userdata"] == USER_DATA
    (network,) = found["networks"]["config"]
    assert network["mac_address"] == made["networks"][0]["mac"]
    assert [each["type"] for each in network["subnets"]] == ["dhcp4"]


def test_cloud_init_learns_a_fixed_address(networked, micro_guest, cloud_root):
    networked.ok("image", "add", micro_guest.path, "--name", "guest")
    networked.define_network("net1", "192.168.150.0/24")
    words = ("--image", "guest", "--memory", "16M", "--no-start", "--network")
    made = networked.json("server", "create", "web", *words, "net1,ip=192.168.150.5")
    network, names = read_by_cloud_init(cloud_root, networked, made)["networks"]["config"]
    (subnet,) = network["subnets"]
    assert (subnet["type"], subnet["address"]) == ("static", "192.168.150.5")
    assert subnet["netmask"] == "255.255.255.0"
    assert [each["gateway"] for each in subnet["routes"]] == ["192.168.150.1"]
    assert (names["type"], names["address"]) == ("nameserver", "192.168.150.1")


def test_every_server_is_another_instance(guest, cloud_root):
    made = [
        guest.json("server", "create", name, "--image", "guest", "--memory", "16M", "--no-start")
        for name in ("a", "b")
    ]
    read = [read_by_cloud_init(cloud_root, guest, each) for each in made]
    assert [each["metadata"]["instance-id"] for each in read] == [each["id"] for each in made]


@pytest.mark.timeout(900)
def test_a_cloud_image_boots_with_its_keys_and_data(millpond, workdir, key, cloud_image):
    (workdir / "data").write_text(USER_DATA)
    millpond.ok("image", "add", cloud_image, "--name", "debian")
    words = ("--memory", "512M", "--disk", "2G", "--hostname", "web01")
    options = ("--ssh-key", f"{key}.pub", "--user-data", workdir / "data")
    made = millpond.json("server", "create", "web", "--image", "debian", *words, *options)
    millpond.wait_for_console(made["id"], "USER DATA RAN ON web01", 600)
    millpond.wait_for_console(made["id"], "KEYS me@here", 60)
    console = millpond.wait_for_console(made["id"], "Datasource DataSourceConfigDrive", 120)
    assert "Broken config drive" not in console


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_server_of_anothers_snapshot_is_a_new_machine(millpond, workdir, cloud_image):
    """Its host keys and its machine id are its own, and so is the address that DHCP gives it."""
    (workdir / "data").write_text(USER_DATA)
    millpond.ok("image", "add", cloud_image, "--name", "debian")
    said = {}
    for name, image in (("first", "debian"), ("second", "snap")):
        words = ("--memory", "512M", "--disk", "2G", "--user-data", workdir / "data")
        made = millpond.json("server", "create", name, "--image", image, *words)
        console = millpond.wait_for_console(made["id"], "HOST KEY ", 600)
        said[name] = dict(re.findall(r"(MACHINE|HOST KEY) (\S+)", console))
        assert f"USER DATA RAN ON {name}" in console
        if name == "first":
            millpond.ok("server", "stop", name, "--timeout", "120")
            millpond.ok("server", "snapshot", name, "snap")
    assert said["first"].keys() == said["second"].keys() == {"MACHINE", "HOST KEY"}
    assert not set(said["first"].values()) & set(said["second"].values())
