"""Servers come back after a reboot of their host, if they should."""

import pytest
from lxml import etree

from millpond.doctor import power as power_checks
from millpond.doctor.finding import Level
from millpond.errors import GuestStaysOn
from millpond.records.journal import StepMoment
from millpond.servers import power
from millpond.servers.recover import rebuild_records
from tests.support.killer import kill_at
from tests.support.waiting import wait_for


@pytest.fixture
def micro(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "micro")
    return "micro"


def create(millpond, name, *options):
    usual = ("--image", "micro", "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", name, *usual, *options)


def states(millpond):
    return {each["name"]: each["state"] for each in millpond.json("server", "list")}


def flags(connection):
    return {each.name(): bool(each.autostart()) for each in connection.listAllDomains()}


def findings(millpond):
    host = millpond.host()
    found = [*power_checks.running(host), *power_checks.autostart(host)]
    return [each for each in found if each.level is not Level.OK]


def test_what_should_run_runs_after_a_reboot_of_the_host(millpond, micro, libvirtd, connection):
    for name in ("runs", "stopped", "killed", "rebooted", "told-not-to"):
        create(millpond, name)
    create(millpond, "never", "--no-start")
    millpond.ok("server", "stop", "stopped", "--force")
    connection.lookupByName("killed").destroy()
    millpond.ok("server", "reboot", "rebooted", "--hard")
    millpond.ok("server", "set", "told-not-to", "--no-autostart")
    wanted = {"runs": True, "killed": True, "rebooted": True}
    others = {"stopped": False, "told-not-to": False, "never": False}
    assert flags(connection) == wanted | others

    libvirtd.restart()  # no boot: what is off stays off
    assert states(millpond)["killed"] == "stopped"

    libvirtd.reboot()
    wait_for(lambda: all(states(millpond)[name] == "running" for name in wanted), 60)
    assert {states(millpond)[name] for name in others} == {"stopped"}
    guest = next(each for each in millpond.json("server", "list") if each["name"] == "killed")
    millpond.wait_for_console(guest["id"], "BOOTS 0002")


def test_it_is_told_what_should_run_and_does_not(millpond, micro, connection):
    create(millpond, "web")
    create(millpond, "db")
    assert findings(millpond) == []
    for name in ("web", "db"):
        connection.lookupByName(name).destroy()
    (found,) = findings(millpond)
    assert found.what == "2 servers should run and do not: db, web"
    assert found.level is Level.PROBLEM
    assert "stopped, should run" in millpond.ok("server", "list")
    assert "stopped, should run" in millpond.ok("server", "show", "web")
    assert millpond.run("doctor").returncode == 1

    assert "2 servers should run and do not" in millpond.ok("doctor", "--mend")
    assert set(states(millpond).values()) == {"running"}
    assert findings(millpond) == []

    connection.lookupByName("web").destroy()
    millpond.ok("server", "stop", "web")
    assert findings(millpond) == []


def test_one_that_cannot_start_keeps_no_other_from_it(millpond, micro, connection):
    for name in ("a", "b"):
        create(millpond, name)
        connection.lookupByName(name).destroy()
    root = millpond.disks / f"{millpond.server('a').id}_disk"
    root.rename(root.with_suffix(".away"))
    done = millpond.run("doctor", "--repair")
    assert (done.returncode, states(millpond)["b"]) == (1, "running")
    root.with_suffix(".away").rename(root)
    millpond.ok("doctor", "--repair")
    assert set(states(millpond).values()) == {"running"}


def test_what_somebody_else_starts_is_told_and_recorded(millpond, micro, connection):
    create(millpond, "web", "--no-start")
    connection.lookupByName("web").create()
    (found,) = findings(millpond)
    assert (found.level, found.what.startswith("1 server runs, but was not")) == (
        Level.WARNING,
        True,
    )
    assert "started web" in millpond.ok("server", "start", "web")
    assert findings(millpond) == []
    assert flags(connection) == {"web": True}


def test_an_autostart_that_differs_is_told_and_set_as_recorded(millpond, micro, connection):
    create(millpond, "web")
    connection.lookupByName("web").setAutostart(0)
    (found,) = findings(millpond)
    assert found.what == "libvirt's autostart is not as recorded of 1 server: web"
    millpond.ok("doctor", "--mend")
    assert flags(connection) == {"web": True}


def test_autostart_can_be_changed_of_several_at_once(millpond, micro, connection):
    create(millpond, "web")
    create(millpond, "db", "--no-start")
    shown = millpond.json("server", "set", "web", "db", "--no-autostart")
    assert [each["autostart"] for each in shown] == [False, False]
    assert flags(connection) == {"web": False, "db": False}
    assert ["Autostart", "no"] in map(str.split, millpond.ok("server", "show", "web").splitlines())
    assert millpond.json("server", "set", "web", "--autostart")["autostart"] is True
    assert flags(connection) == {"web": True, "db": False}
    assert millpond.fails("server", "set", "web")[0] == 2
    assert millpond.fails("server", "set", "nosuch", "--autostart")[0] == 3


def test_a_guest_that_stays_on_should_still_run(millpond, workdir, connection):
    (workdir / "empty.raw").write_bytes(bytes(2**20))  # it never powers itself off
    millpond.ok("image", "add", workdir / "empty.raw", "--name", "micro")
    create(millpond, "web")
    server = millpond.server("web")
    with pytest.raises(GuestStaysOn):
        power.stop(millpond.host(), server, patience=1)
    assert millpond.server("web").should_run
    assert flags(connection) == {"web": True}
    assert findings(millpond) == []


@pytest.mark.parametrize("moment", StepMoment)
def test_a_stop_whose_process_is_killed_is_finished_or_undone(millpond, micro, connection, moment):
    create(millpond, "web")
    kill_at(millpond, "stop", "stop", moment, "stop", "web")
    assert "interrupted (stop: stop)" in millpond.ok("server", "list")
    millpond.ok("doctor", "--mend")
    goes_on = moment is StepMoment.BEGIN
    assert states(millpond) == {"web": "running" if goes_on else "stopped"}
    assert millpond.server("web").should_run is goes_on
    assert flags(connection) == {"web": goes_on}


def test_lost_records_know_what_should_run(millpond, micro, connection):
    create(millpond, "web")
    create(millpond, "off", "--no-start")
    create(millpond, "by-hand", "--no-start")
    connection.lookupByName("by-hand").create()
    for each in (millpond.state / "servers").iterdir():
        each.unlink()
    rebuilt = {each.name: each.should_run for each in rebuild_records(millpond.host())}
    assert rebuilt == {"web": True, "off": False, "by-hand": True}
    assert flags(connection) == rebuilt


def test_the_domain_has_what_the_record_has(millpond, micro, connection):
    create(millpond, "web")
    millpond.ok("server", "set", "web", "--no-autostart")
    text = connection.lookupByName("web").XMLDesc()
    (copy,) = etree.fromstring(text).iter("{urn:millpond:server:1}server")
    assert '"autostart": false' in copy.text
