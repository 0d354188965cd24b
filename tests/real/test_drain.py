"""A host is drained: everything is moved away, and it gets nothing new until it is enabled."""

from dataclasses import replace

import pytest

from millpond.records.journal import StepMoment
from tests.real.test_migrate import check_only_on, contents, create
from tests.support.killer import kill_at
from tests.support.millpond import converted


@pytest.fixture
def images(multi_host, micro_guest, workdir):
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    multi_host.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "qcow2")
    return multi_host


def state(hosts, host):
    return next(each for each in hosts.json("host", "list") if each["name"] == host)["state"]


def states(hosts):
    return {each["name"]: each["state"] for each in hosts.json("server", "list")}


@pytest.mark.parametrize("stop", [(), pytest.param(("--stop",), marks=pytest.mark.full)])
def test_all_servers_leave_and_come_back_only_when_it_is_enabled(images, stop):
    create(images, "off", "qcow2", "--no-start")
    create(images, "whole", "raw", "--no-start", "--swap", "16M", "--firmware", "uefi")
    create(images, "runs", "raw")
    old = create(images, "efi", "raw", "--no-start", "--firmware", "uefi")
    images.deployment().records.put(replace(old, disks=old.disks[:-1]))  # of an earlier version
    before = contents(images, "off")
    would = images.run("host", "drain", "alder", *stop, "--dry-run")
    assert (would.returncode, "would move off to" in would.stdout) == (5, True), would.stderr
    assert "would move runs to" in would.stdout
    assert "efi stays on alder" in would.stderr
    assert "UEFI variables" in would.stderr
    assert state(images, "alder") == "up"
    assert images.where("off") == "alder"

    done = images.run("host", "drain", "alder", *stop, "--timeout", "30")
    assert (done.returncode, "efi stays on alder" in done.stderr) == (5, True), done.stderr
    assert (state(images, "alder"), images.where("efi")) == ("disabled", "alder")
    expected = {"off": "stopped", "whole": "stopped", "runs": "running", "efi": "stopped"}
    assert states(images) == expected
    assert contents(images, "off") == before
    for name in ("off", "whole", "runs"):
        assert images.where(name) != "alder"
        check_only_on(images, name, images.where(name))
    images.ok("server", "delete", "efi", "--yes")
    assert images.json("host", "drain", "alder") == []

    words = ("--image", "raw", "--memory", "16M", "--no-start")
    status, message = images.fails("server", "create", "new", *words, "--host", "alder")
    assert (status, "disabled" in message) == (6, True)
    images.ok("host", "list", "--refresh")
    assert "drained" in images.ok("host", "show", "alder")
    assert images.fails("server", "migrate", "off", "--host", "alder")[0] == 6
    images.ok("host", "enable", "alder")
    assert state(images, "alder") == "up"
    images.ok("server", "migrate", "off", "--host", "alder")
    check_only_on(images, "off", "alder")


def test_what_cannot_be_is_refused_and_nothing_has_changed(images):
    for words, status, said in (
        (("drain", "elm"), 3, "there is no host 'elm'"),
        (("disable", "elm"), 3, "there is no host 'elm'"),
        (("enable", "elm"), 3, "there is no host 'elm'"),
        (("enable", "alder"), 2, "enabled already"),
        (("drain", "alder", "--timeout", "0"), 2, "timeout"),
    ):
        found, message = images.fails("host", *words)
        assert (found, said in message) == (status, True), (words, message)
    images.ok("host", "disable", "alder", "--reason", "new disks")
    assert "new disks" in images.ok("host", "show", "alder")
    assert "already" in images.ok("host", "disable", "alder")
    images.configure(enabled=("alder",))
    for verb in ("drain", "disable"):
        status, message = images.fails("host", verb, "alder")
        assert (status, "no other host" in message) == (2, True)
    images.ok("host", "enable", "alder")


def test_a_silent_host_is_not_drained(images):
    images.ok("host", "list", "--refresh")
    images.hosts["alder"].stop()
    try:
        status, message = images.fails("host", "drain", "alder")
        assert (status, "evacuate" in message) == (6, True)
    finally:
        images.hosts["alder"].start()
    assert state(images, "alder") == "up"


@pytest.mark.full
@pytest.mark.parametrize("step", ["copy", "remove"])
def test_interrupted_it_goes_on(images, step):
    create(images, "one", "qcow2", "--no-start")
    create(images, "two", "raw", "--no-start")
    kill_at(images, "migrate", step, StepMoment.END, "migrate", "one", "birch")
    images.ok("host", "drain", "alder")
    for name in ("one", "two"):
        assert images.where(name) != "alder"
        check_only_on(images, name, images.where(name))
