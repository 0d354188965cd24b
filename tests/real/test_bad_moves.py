"""B48 of what is done between hosts: one clear sentence with a hint, its exit status, and nothing
has changed on any of them."""

import pytest

from tests.real.test_migrate import FILTER, MEMORY

RAW = ("--image", "raw", *MEMORY)
SAID = {
    "server migrate web --stop --host alder": (2, "server 'web' is on host 'alder' already"),
    "server migrate web --stop --host elm": (3, "there is no host 'elm'"),
    "server migrate web --stop --host Brich": (3, "did you mean 'birch'?"),
    "host drain alde": (3, "did you mean 'alder'?"),
    "server evacuate web --from ceda --fenced": (3, "did you mean 'cedar'?"),
    "server migrate web --stop --host birch": (6, "DISK_GB"),
    "server migrate web --stop --host cedar": (6, "lacks COMPUTE_IMAGE_TYPE_RAW"),
    "server migrate web --stop": (6, "no valid host"),
    "server migrate web --live --host alder": (2, "server 'web' is on host 'alder' already"),
    "server migrate web --live --host elm": (3, "there is no host 'elm'"),
    "server migrate web --live --host birch": (6, "DISK_GB"),
    "server migrate web --live --host cedar": (6, "lacks COMPUTE_IMAGE_TYPE_RAW"),
    "server migrate web --live": (6, "no valid host"),
    "server migrate web": (5, "add --stop"),
    "server migrate off --live": (4, "this needs it to be running"),
    "server migrate off --host=": (2, "--host: it is empty"),
    "server migrate off --force": (2, "add --stop"),
    "server create new --image raw --memory 16M --host=": (2, "--host: it is empty"),
    "server evacuate web --from birch --fenced --host=": (2, "--host: it is empty"),
    "server migrate web --abort": (4, "server 'web' is not being migrated"),
    "server migrate off --abort": (4, "server 'off' is not being migrated"),
    "server resize off --disk 512K": (5, "a disk only grows"),
    "server resize web --disk 512K": (5, "a disk only grows"),
    "server resize off --disk 0": (5, "a disk only grows"),
    "server resize off --disk 900G": (
        6,
        "host 'alder' has too little DISK_GB left for server 'off'",
    ),
    "server resize off --confirm": (4, "has no resize to confirm or revert"),
    "server resize off --revert": (4, "has no resize to confirm or revert"),
    "server evacuate web --from alder --fenced": (2, "host 'alder' answers"),
    "server evacuate --all --from alder --fenced": (2, "host 'alder' answers"),
    "server evacuate web --from birch --fenced": (2, "'web' is on host 'alder'"),
}


@pytest.fixture
def hosts(multi_host, micro_guest):
    """alder has a server that runs and one that is off; birch is full, and cedar takes no raw
    images."""
    multi_host.configure(
        {"cedar": "image_type_exclude_list = raw"},
        rest=f"[libvirt]\nimages_type_mapping = raw:raw\n{FILTER}",
    )
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    for name, host, *more in (
        ("web", "alder", "--disk", "3G"),
        ("off", "alder", "--no-start"),
        ("full", "birch", "--disk", "3G", "--no-start"),
    ):
        multi_host.ok("server", "create", name, *RAW, "--host", host, *more)
    return multi_host


def world(hosts):
    """All that a command could have changed."""
    records = hosts.state / "servers"
    domains = {}
    for name, host in hosts.hosts.items():
        with host.connect() as connection:
            domains[name] = {
                (each.name(), each.isActive(), each.ID()) for each in connection.listAllDomains()
            }
    return (
        {each.name: each.read_bytes() for each in records.glob("*.json")},
        domains,
        {each: hosts.volumes(each) for each in hosts.hosts},
        hosts.taken_by(),
    )


def test_each_is_refused_and_nothing_has_changed(hosts):
    before = world(hosts)
    for words, (status, sentence) in SAID.items():
        found, said = hosts.fails(*words.split())
        assert (found, sentence in said) == (status, True), (words, said)
        assert said.startswith("millpond: "), said
        assert "\n  hint: " in said, said
        assert world(hosts) == before, words
