"""Servers of a host that has lost its power come to another one that shares their disks."""

from json import loads
from pathlib import Path

import pytest

from millpond.hosts.deployment import Deployment
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from millpond.servers.evacuate import EvacuateRequest, evacuate
from tests.real.test_kill import moments
from tests.real.test_migrate import contents, create
from tests.support.killer import kill_at
from tests.support.millpond import converted
from tests.support.multi_host import NAMES
from tests.support.qemus import watching_qemus
from tests.support.waiting import wait_for

BEFORE = ("claim", "template", "domain", "lock", "switch")
"""Killed there, the server is still the dead host's."""
KILLS = [
    pytest.param(step, moment, marks=pytest.mark.full, id=f"{step}-{moment}")
    for step, moment in moments("evacuate")
]
FENCED = ("--from", "alder", "--fenced")


@pytest.fixture
def shared(sharing_hosts, micro_guest, workdir):
    """alder and birch share the directory of disks, cedar has another one. The image named raw
    becomes a raw disk, without a template below."""
    own = (
        f"disks_pool_path = {sharing_hosts.directory}/shared/disks\nimages_type_mapping = raw:raw"
    )
    sharing_hosts.configure(dict.fromkeys(NAMES, own))
    sharing_hosts.ok("image", "add", micro_guest.path, "--name", "raw")
    qcow2 = converted(micro_guest, "qcow2", workdir)
    sharing_hosts.ok("image", "add", qcow2, "--name", "qcow2")
    sharing_hosts.ok("host", "list", "--refresh")
    return sharing_hosts


@pytest.fixture
def alder(shared):
    host = shared.hosts["alder"]
    yield host
    if not host.is_running:
        host.start()


def domains(hosts, host):
    return hosts.deployment().hosts[host].domains.names()


def state(hosts, host, name):
    found = hosts.deployment()
    return found.hosts[host].domains.state(found.server(name).id)


def console(hosts, name):
    host, server = hosts.deployment().find(name)
    return host.consoles.read(server.id, name).decode(errors="replace")


def ticks(hosts, name):
    found = [each for each in console(hosts, name).split("TICK ")[1:] if len(each) >= 4]
    return [int(each[:4], 16) for each in found]


def tick_on_disk(hosts, name):
    """Of a raw disk."""
    volume = hosts.deployment().server(name).get_disk().volume
    held = (hosts.directory / "shared" / "disks" / volume).read_bytes()
    return int.from_bytes(held[3 * 512 : 3 * 512 + 2], "little")


@pytest.mark.parametrize("image", ["qcow2", "raw"])
def test_it_boots_elsewhere_with_all_that_its_guest_wrote(shared, alder, image):
    create(shared, "web", image)
    create(shared, "off", image, "--no-start")
    wait_for(lambda: len(ticks(shared, "web")) > 2, 60)
    last = ticks(shared, "web")[-1]
    alder.lose_power()
    assert image == "qcow2" or tick_on_disk(shared, "web") >= last
    would = shared.json("server", "evacuate", "--all", "--from", "alder", "--dry-run")
    assert [(each["name"], each["host"]) for each in would] == [("off", "birch"), ("web", "birch")]
    assert shared.where("web") == "alder"
    told = shared.json("server", "evacuate", "--all", *FENCED)
    assert {each["name"]: (each["host"], each["error"]) for each in told} == {
        "off": ("birch", ""),
        "web": ("birch", ""),
    }
    assert (state(shared, "birch", "web"), state(shared, "birch", "off")) == ("running", "stopped")
    wait_for(lambda: "BOOTS 0002" in console(shared, "web"), 60)
    before = contents(shared, "off")

    alder.start()  # and libvirt would start web, if nobody had it
    assert {"web", "off"} <= set(domains(shared, "alder"))
    told = " ".join(shared.run("doctor", "--host", "alder").stdout.split())
    assert "is that of a server which is on host birch" in told
    status, message = shared.fails("host", "enable", "alder")
    assert (status, "still has what was moved away" in message) == (4, True)
    shared.run("doctor", "--repair", "--host", "alder")
    shared.ok("host", "enable", "alder")
    assert not {"web", "off"} & set(domains(shared, "alder"))
    assert shared.ok("doctor", "--placement").endswith("no problem\n")
    assert contents(shared, "off") == before
    assert state(shared, "birch", "web") == "running"
    assert shared.taken_by() == {each.id for each in shared.deployment().records.all()}
    shared.ok("server", "delete", "web", "off", "--yes")


def test_a_host_whose_guests_still_run_is_refused_by_their_locks(shared, alder):
    create(shared, "web", "raw")
    before = shared.deployment().server("web")
    status, message = shared.fails("server", "evacuate", "web", *FENCED)
    assert (status, "host 'alder' answers" in message) == (2, True)
    alder.stop()  # libvirtd alone: the guest runs on
    status, message = shared.fails("server", "evacuate", "web", "--from", "alder")
    assert (status, "--fenced" in message) == (2, True)
    status, message = shared.fails("server", "evacuate", "web", *FENCED)
    assert (status, "is in use" in message) == (4, True), message
    assert shared.deployment().server("web") == before
    assert "web" not in domains(shared, "birch")
    alder.start()
    assert state(shared, "alder", "web") == "running"
    assert shared.ok("doctor", "--placement").endswith("no problem\n")


@pytest.fixture
def ploop_volume(multi_host, micro_guest):
    """Of a server whose disk's format notes that somebody has it open. Hosts reach its file."""
    own = multi_host.place_locally("images_type_mapping = raw:ploop", shared=True)
    multi_host.configure(own, default=f"instances_path = {multi_host.directory}/instances")
    multi_host.ok("host", "list", "--refresh")
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    create(multi_host, "web", "raw")
    host, server = multi_host.deployment().find("web")
    disk = server.get_disk()
    yield Path(host.pools.open(disk.pool).get(disk.volume).path)
    if not multi_host.hosts["alder"].is_running:
        multi_host.hosts["alder"].start()


def test_an_image_that_the_dead_host_left_open_is_repaired_first(multi_host, ploop_volume):
    wait_for(lambda: "BOOTS" in console(multi_host, "web"), 60)
    multi_host.hosts["alder"].lose_power()
    with open(ploop_volume, "r+b") as image:
        image.seek(44)
        image.write(b"Ynot")
    multi_host.ok("server", "evacuate", "web", *FENCED)
    wait_for(lambda: "BOOTS 0002" in console(multi_host, "web"), 60)
    multi_host.ok("server", "delete", "web", "--yes")


def test_an_image_that_somebody_has_open_is_not_repaired(multi_host, ploop_volume):
    multi_host.hosts["alder"].stop()
    status, message = multi_host.fails("server", "evacuate", "web", *FENCED)
    assert (status, "is in use" in message) == (4, True), message
    multi_host.hosts["alder"].start()
    assert state(multi_host, "alder", "web") == "running"
    multi_host.ok("server", "delete", "web", "--yes")


def test_what_cannot_be_is_refused_and_nothing_has_changed(shared, alder):
    create(shared, "web", "qcow2", "--no-start")
    create(shared, "swapped", "qcow2", "--no-start", "--swap", "16M")
    alder.lose_power()
    before = shared.deployment().records.all()
    for words, status, said in (
        (("web",), 2, "--from HOST"),
        (("web", "--from", "elm"), 3, "there is no host 'elm'"),
        (("web", "--from", "birch"), 2, "'web' is on host 'alder'"),
        (("web", *FENCED, "--host", "alder"), 2, "the host that is dead"),
        (("web", *FENCED, "--host", "elm"), 3, "there is no host 'elm'"),
        (("web", *FENCED, "--host", "cedar"), 6, "was not proven to share"),
        (("swapped", *FENCED, "--host", "birch"), 6, "has formatted"),
        (("nobody", *FENCED), 3, "there is no server 'nobody'"),
        ((*FENCED,), 2, "no server is named"),
    ):
        found, message = shared.fails("server", "evacuate", *words)
        assert (found, said in message) == (status, True), (words, message)
    assert shared.deployment().records.all() == before


@pytest.mark.parametrize(("step", "moment"), KILLS)
def test_killed_anywhere_the_same_command_again_saves_it(shared, alder, step, moment):
    create(shared, "web", "qcow2")
    wait_for(lambda: ticks(shared, "web"), 60)
    alder.lose_power()
    kill_at(shared, "evacuate", step, moment, "evacuate", "web", "birch")
    assert shared.where("web") == ("alder" if step in BEFORE else "birch")
    shared.ok("server", "evacuate", "web", *FENCED)
    assert shared.deployment().server("web").operation is None
    wait_for(lambda: "BOOTS 0002" in console(shared, "web"), 60)
    alder.start()
    shared.run("doctor", "--repair")
    assert "web" not in domains(shared, "alder")
    assert shared.ok("doctor", "--placement").endswith("no problem\n")


@pytest.mark.parametrize(("step", "moment"), KILLS)
def test_a_destinations_libvirtd_that_dies_anywhere_costs_nothing(shared, alder, step, moment):
    """It is back before somebody comes: doctor, or who gives the same command again."""
    create(shared, "web", "raw")
    wait_for(lambda: ticks(shared, "web"), 60)
    alder.lose_power()
    birch = shared.hosts["birch"]

    def watch(*where):
        if where == ("evacuate", step, moment) and birch.is_running:
            birch.kill()

    deployment = Deployment.load([shared.config], watch)
    server = deployment.server("web")
    request = EvacuateRequest(source="alder", host="birch", fenced=True)
    with watching_qemus(server.id) as seen:
        assert [each for each in evacuate(deployment, [server], request)]
        assert not birch.is_running
        birch.start()
        shared.run("doctor", "--repair", "--host", "birch")
        if shared.where("web") == "alder":
            shared.ok("server", "evacuate", "web", *FENCED)
        wait_for(lambda: "BOOTS 0002" in console(shared, "web"), 60)
    assert 1 <= len(seen) <= 2  # the one that only takes the locks may be gone before it is seen
    alder.start()  # whose libvirt starts web, and QEMU does not get the lock
    assert state(shared, "alder", "web") == "stopped"
    shared.run("doctor", "--repair")
    before = ticks(shared, "web")[-1]
    wait_for(lambda: ticks(shared, "web")[-1] > before, 60)
    assert shared.where("web") == "birch"
    assert shared.deployment().server("web").operation is None
    assert "web" not in domains(shared, "alder")
    assert shared.taken_by() == {server.id}
    assert shared.ok("doctor", "--placement").endswith("no problem\n")


@pytest.mark.full
@pytest.mark.parametrize("step", ["domain", "lock", "release"])
def test_killed_there_and_repaired_one_host_has_it(shared, alder, step):
    """With the dead host back before anybody looks."""
    create(shared, "web", "raw", "--no-start")
    before = contents(shared, "web")
    alder.lose_power()
    kill_at(shared, "evacuate", step, StepMoment.END, "evacuate", "web", "birch")
    alder.start()
    for _ in range(2):  # alder's copy stays as long as birch's operation is not finished
        shared.run("doctor", "--repair")
    where = "alder" if step in BEFORE else "birch"
    (other,) = {"alder", "birch"} - {where}
    assert (shared.where("web"), "web" in domains(shared, other)) == (where, False)
    assert contents(shared, "web") == before
    shared.ok("server", "start", "web")
    assert shared.ok("doctor", "--placement").endswith("no problem\n")


@pytest.mark.full
def test_what_was_under_way_gives_way_unless_it_changes_disks(shared, alder):
    for name in ("started", "moved", "grown"):
        create(shared, name, "raw", "--no-start")
    kill_at(shared, "start", "domain", StepMoment.END, "start", "started")
    kill_at(shared, "migrate", "template", StepMoment.END, "migrate", "moved", "birch")
    kill_at(shared, "grow", "extend", StepMoment.BEGIN, "grow", "grown", 64 * MiB)
    alder.lose_power()
    before = shared.deployment().server("grown")
    for options in (("--from", "alder", "--dry-run"), FENCED):
        done = shared.run("server", "evacuate", "--all", *options, "--json")
        found = {each["name"]: (each["host"], bool(each["error"])) for each in loads(done.stdout)}
        assert found == {
            "grown": ("alder", True),
            "moved": ("birch", False),
            "started": ("birch", False),
        }
        assert (done.returncode, "bring the host back" in done.stderr) == (4, True), done.stderr
    assert shared.deployment().server("grown") == before
    assert (state(shared, "birch", "started"), state(shared, "birch", "moved")) == (
        "running",
        "stopped",
    )
    alder.start()
    for _ in range(2):
        shared.run("doctor", "--repair")
    assert shared.deployment().server("grown").operation is None
    assert not {"started", "moved"} & set(domains(shared, "alder"))
    assert shared.ok("doctor", "--placement").endswith("no problem\n")


def test_a_guest_that_had_arrived_is_not_started_again(shared, alder):
    """Its live migration was killed, and then its host died: it runs at the destination."""
    create(shared, "web", "qcow2")
    wait_for(lambda: ticks(shared, "web"), 60)
    kill_at(shared, "live migrate", "migrate", StepMoment.END, "live", "web", "birch")
    alder.lose_power()
    assert shared.where("web") == "alder"
    (listed,) = shared.json("server", "list")
    assert listed["state"] == "interrupted (live migrate: migrate)"
    told = " ".join(shared.run("doctor", "--host", "birch").stdout.split())
    assert "was left at step 'migrate' of its 'live migrate'" in told
    assert "do not undefine or start it" in told
    (would,) = shared.json("server", "evacuate", "web", "--from", "alder", "--dry-run")
    assert (would["host"], would["error"], shared.where("web")) == ("birch", "", "alder")
    shared.ok("server", "evacuate", "web", *FENCED)
    assert (shared.where("web"), state(shared, "birch", "web")) == ("birch", "running")
    before = ticks(shared, "web")[-1]
    wait_for(lambda: ticks(shared, "web")[-1] > before, 60)
    assert "BOOTS 0002" not in console(shared, "web")
    assert shared.json("server", "show", "web")["state"] == "running"
