"""The image cache: what is used stays, what is not goes, whatever happens meanwhile."""

import json
import os
import shutil
import subprocess
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from millpond.errors import MillpondError
from millpond.hosts.cache import list_templates
from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.model.formats import DiskFormat
from millpond.model.server import Content
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from millpond.servers import delete
from millpond.templates.cache_manager import ImageCacheManager, UsageLeases
from millpond.templates.publication import Publication
from millpond.templates.scrub import Outcome
from tests.support.audit import started_processes
from tests.support.killer import kill_at
from tests.support.loopfs import fill
from tests.support.many_servers import populate
from tests.support.millpond import converted

NO_AGE = "[image_cache]\nremove_unused_original_minimum_age_seconds = 0\n"


@pytest.fixture
def image(millpond, micro_guest, workdir):
    """A qcow2 image: its raw template is converted, and no other file's bytes."""
    millpond.configure(NO_AGE)
    file = converted(micro_guest, "qcow2", workdir)
    return Intake(millpond.host().shared.images_directory).add(file, name="guest")


@pytest.fixture
def template(millpond, image):
    return millpond.host().handlers.chosen.fetch_image(image, DiskFormat.RAW)


def create(millpond, name, *words):
    millpond.ok(
        "server", "create", name, "--image", "guest", "--memory", "32M", "--no-start", *words
    )


def bases(millpond):
    return sorted(os.listdir(millpond.bases))


def fates(millpond):
    """What ``cache list`` says of each template."""
    listed = millpond.json("cache", "list")["templates"]
    return {each["template"]["volume"]: each["reason"] for each in listed}


def prune(millpond, *words):
    return [each["template"]["volume"] for each in millpond.json("cache", "prune", *words)]


@pytest.mark.parametrize("blank", [False, True])
def test_a_template_that_another_host_put_there_is_known_to_libvirt(millpond, image, blank):
    """In a directory that both hosts have: libvirt lists what it has made or looked for itself."""
    host = millpond.host()

    def fetch():
        if blank:
            return host.blanks.fetch(Content.SWAP, 16 * MiB)
        return host.handlers.chosen.fetch_image(image, DiskFormat.RAW)

    name = fetch().volume
    place = millpond.bases / name
    aside = millpond.bases.with_name(name)
    place.rename(aside)
    host.pools.base.refresh()
    aside.rename(place)
    assert host.pools.base.find(name) is None
    assert fetch().volume == name
    assert host.pools.base.find(name)


def test_an_unused_template_goes_when_it_is_old(millpond, template):
    millpond.configure()
    assert prune(millpond) == []
    assert prune(millpond, "--dry-run", "--all-unused") == [template.volume]
    assert bases(millpond) == [template.volume]
    millpond.configure(NO_AGE)
    assert prune(millpond) == [template.volume]
    assert bases(millpond) == []
    assert prune(millpond) == []


def test_a_pool_that_is_full_to_the_last_byte_is_listed(millpond, micro_guest, make_filesystem):
    """There is no space for the marker by which files are found to be here: on XFS a new inode
    needs some. What is there already shows it as well."""
    small = make_filesystem("xfs")
    millpond.configure(default=f"instances_path = {small.path}")
    millpond.make_pools()
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    millpond.ok("cache", "fetch", "guest")
    fill(small.path / "filler")
    assert len(millpond.json("cache", "list")["templates"]) == 1


def test_a_listing_makes_no_pool(millpond, connection):
    assert millpond.json("cache", "list") == {"templates": [], "ceph": []}
    assert connection.listAllStoragePools() == []


def test_what_a_server_stands_on_stays_blank_disks_included(millpond, image):
    create(millpond, "web", "--swap", "16M", "--ephemeral", "16M")
    assert len(bases(millpond)) == 3
    assert prune(millpond) == []
    assert set(fates(millpond).values()) == {"used by web"}
    millpond.ok("server", "delete", "web")
    assert len(prune(millpond)) == 3
    assert bases(millpond) == []


def test_a_domain_that_is_not_ours_keeps_its_base(millpond, template, connection, workdir):
    base, overlay = millpond.bases / template.volume, workdir / "foreign.qcow2"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, overlay], check=True
    )
    domain = connection.defineXML(f"""
        <domain type='qemu'><name>foreign</name><memory>32768</memory><os><type>hvm</type></os>
        <devices><disk type='file'><driver name='qemu' type='qcow2'/><source file='{overlay}'/>
        <backingStore type='file'><format type='raw'/><source file='{base}'/><backingStore/>
        </backingStore><target dev='vda'/></disk></devices></domain>""")
    assert prune(millpond) == []
    assert fates(millpond) == {template.volume: "used by foreign"}
    code, message = millpond.fails("image", "remove", "guest")
    assert (code, f"{template.volume} is the base of foreign" in message) == (4, True)
    assert bases(millpond) == [template.volume]
    assert millpond.json("image", "list")[0]["name"] == "guest"
    domain.undefine()
    millpond.ok("image", "remove", "guest")
    assert bases(millpond) == []


def test_a_volume_that_is_qcow2_by_our_record_keeps_its_base(
    millpond, image, template, connection
):
    """B21: a record that forgot the template, and a domain that is gone."""
    create(millpond, "web")
    host = millpond.host()
    server = host.shared.server("web")
    forgotten = tuple(replace(disk, template=None, overlay=False) for disk in server.disks)
    host.records.put(replace(server, disks=forgotten))
    connection.lookupByName("web").undefine()
    assert prune(millpond) == []
    assert fates(millpond) == {template.volume: "used by web"}


def test_a_raw_disk_that_claims_a_base_pins_nothing(millpond, image, connection, workdir):
    """B21: its first bytes are the guest's, whatever libvirt makes of them."""
    millpond.configure("images_type = raw\n" + NO_AGE)
    create(millpond, "web")
    (name,) = bases(millpond)
    claim = workdir / "claim"
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw"]
    subprocess.run([*words, "-b", millpond.bases / name, claim], check=True)
    disk = millpond.disks / millpond.server("web").disks[0].volume
    with open(disk, "r+b") as file:
        file.write(claim.read_bytes())
    pool = connection.storagePoolLookupByName("nova-disks-pool")
    pool.refresh()
    assert str(millpond.bases / name) in pool.storageVolLookupByName(disk.name).XMLDesc()
    assert prune(millpond) == [name]


def test_a_disk_in_novas_layout_keeps_its_base_and_all_if_it_cannot_be_read(millpond, template):
    disk = millpond.state / "instances" / str(uuid.uuid4()) / "disk"
    disk.parent.mkdir()
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw"]
    subprocess.run([*words, "-b", millpond.bases / template.volume, disk], check=True)
    assert prune(millpond) == []
    assert fates(millpond) == {template.volume: f"used by disk {disk}"}
    disk.write_bytes(b"damaged")
    assert prune(millpond) == []
    reason = f"used by perhaps disk {disk}, which cannot be read"
    assert fates(millpond) == {template.volume: reason}
    millpond.configure("images_type = libvirt-storage\n" + NO_AGE)  # says that there is none
    code, message = millpond.fails("cache", "prune")
    assert (code, disk.parent.name in message) == (6, True), message
    shutil.rmtree(disk.parent)
    assert prune(millpond) == [template.volume]


def test_a_pinned_template_stays_until_it_is_unpinned(millpond, template):
    millpond.ok("cache", "pin", "guest")
    assert prune(millpond, "--all-unused") == []
    assert fates(millpond)[template.volume].startswith("pinned by ")
    millpond.ok("cache", "unpin", template.volume)
    assert prune(millpond) == [template.volume]


def test_what_is_not_there_cannot_be_pinned(millpond, image):
    code, message = millpond.fails("cache", "pin", "guest")
    assert (code, "there is no template 'guest'" in message) == (3, True)


def test_another_host_that_shares_the_cache_keeps_what_it_uses(millpond, template):
    """Until it was not heard of for as long as the configuration says."""
    host = millpond.host()
    other = UsageLeases(host.template_store, lambda: "another-host", timedelta(days=30))
    other.note(template.volume)
    assert prune(millpond, "--all-unused") == []
    assert fates(millpond) == {template.volume: "used by host another-host"}
    mark = host.template_store.sidecar / "uses" / "another-host.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "at": "2001-01-01T00:00:00Z"}))
    assert prune(millpond, "--all-unused") == [template.volume]


def test_this_host_tells_the_others_what_it_uses(millpond, image):
    create(millpond, "web")
    host = millpond.host()
    (name,) = bases(millpond)
    other = UsageLeases(host.template_store, lambda: "another-host", timedelta(days=30))
    assert other.hosts_using(name) == (f"host {host.records.owner}",)
    millpond.ok("server", "delete", "web")
    millpond.configure()
    assert prune(millpond) == []
    assert other.hosts_using(name) == ()


def test_a_mark_that_cannot_be_read_keeps_everything(millpond, template):
    (millpond.host().template_store.sidecar / "uses" / "other.json").write_text("{")
    assert prune(millpond) == []
    assert "used by perhaps host other: the record" in fates(millpond)[template.volume]
    assert bases(millpond) == [template.volume]


def test_the_template_of_an_image_that_is_gone_goes_at_once(millpond, image, template):
    millpond.configure()
    millpond.host().shared.catalogue.remove(image)
    assert fates(millpond) == {template.volume: "its image is gone"}
    assert prune(millpond) == [template.volume]


def test_no_program_is_started(millpond, connection):
    """B21; what many disks cost is measured by make bench-cache."""
    populate(millpond, connection, 40, 4)
    host = millpond.host()
    rules = host.cache_rules.at_once()
    with started_processes() as started:
        assert host.cache_manager.prune(rules) == []
        for server in host.records.all():
            delete.delete(host, server)
        assert len(host.cache_manager.prune(rules)) == 5
    assert started == []


def test_a_program_that_is_started_is_heard():
    with started_processes() as started:
        subprocess.run(["true"], check=True)
    assert "subprocess.Popen: ('true'" in started[0]


def test_a_template_that_somebody_works_on_stays(millpond, template):
    host = millpond.host()
    with host.template_store.lock(template.volume):
        assert prune(millpond) == []
    assert prune(millpond) == [template.volume]


def test_a_server_that_came_after_the_first_look_is_seen_by_the_second(millpond, image, template):
    host = millpond.host()

    def look():
        seen = host.template_uses.all()
        create(millpond, "web")
        return seen

    manager = ImageCacheManager(
        host.template_store,
        host.leases,
        host.shared.catalogue,
        find_uses=look,
        find_promised=host.template_uses.promised,
        remove=host.handlers.chosen.drop,
        cleanup=host.handlers.chosen.init,
    )
    assert manager.prune(host.cache_rules) == []
    assert bases(millpond) == [template.volume]
    assert host.leases.own().in_use == {template.volume}


REMOVAL = Publication(None, None, None).removal()


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param(step, moment, marks=() if step == "file" else pytest.mark.full)
        for step in REMOVAL.step_names
        for moment in StepMoment
    ],
)
def test_killed_while_it_removes(millpond, image, template, step, moment):
    kill_at(millpond, "remove", step, moment, "prune")
    create(millpond, "web")
    assert bases(millpond) == [template.volume]
    millpond.ok("server", "delete", "web")
    assert prune(millpond) == [template.volume]
    assert bases(millpond) == []
    assert millpond.host().template_store.unfinished() == []


def flip(path):
    path.chmod(0o644)
    with open(path, "r+b") as file:
        file.seek(1000)
        file.write(bytes([file.read(1)[0] ^ 1]))
    path.chmod(0o444)


def verified(millpond, *words):
    done = millpond.run("cache", "verify", *words, "--json")
    (found,) = json.loads(done.stdout)
    return done.returncode, found["outcome"], found["detail"]


def test_a_flipped_byte_is_found_and_the_template_fetched_again(millpond, image, template):
    path = millpond.bases / template.volume
    before = path.read_bytes()
    assert verified(millpond, "--all") == (0, "recorded", "")
    assert verified(millpond, "guest") == (0, "intact", "")
    flip(path)
    status, outcome, detail = verified(millpond, template.volume)
    assert (status, outcome) == (0, "replaced")
    assert path.read_bytes() == before
    (kept,) = (millpond.host().template_store.sidecar / "quarantine").iterdir()
    assert str(kept) in detail
    assert kept.read_bytes() != before


def test_a_wrong_template_is_replaced_beneath_the_servers_that_are_named(
    millpond, image, micro_guest
):
    create(millpond, "web")
    (name,) = bases(millpond)
    before = (millpond.bases / name).read_bytes()
    millpond.ok("cache", "verify", "--all")
    flip(millpond.bases / name)
    status, outcome, detail = verified(millpond, "--all")
    assert (status, outcome) == (0, "replaced")
    assert detail.startswith("used by web, which may have read wrong bytes; what it was is in ")
    assert (millpond.bases / name).read_bytes() == before
    millpond.ok("server", "start", "web")
    assert micro_guest.marker in millpond.wait_for_console(millpond.server("web").id, "READY")


@pytest.mark.parametrize("step", ["receive", "publish"])
def test_a_wrong_template_stays_beneath_servers_if_it_cannot_be_replaced(millpond, image, step):
    def fail(*where):
        if where == ("prepare", step, StepMoment.END):
            raise MillpondError

    create(millpond, "web")
    (name,) = bases(millpond)
    before = (millpond.bases / name).read_bytes()
    millpond.ok("cache", "verify", "--all")
    flip(millpond.bases / name)
    host = Deployment.load([millpond.config], fail).host()
    (template,) = list_templates(host)
    assert host.scrub.scrub(template).outcome is Outcome.WRONG
    assert bases(millpond) == [name]
    millpond.ok("cache", "verify", "--all")
    assert (millpond.bases / name).read_bytes() == before


@pytest.mark.parametrize("used", [False, True])
def test_a_wrong_template_is_not_replaced_by_a_wrong_image(millpond, image, workdir, used):
    """A hard link: the image has the same wrong byte, until it is added again."""
    millpond.configure("images_type_mapping = qcow2:qcow2\n" + NO_AGE)
    (made,) = millpond.json("cache", "fetch", "guest")
    path = millpond.bases / made["volume"]
    if used:
        create(millpond, "web")
    flip(path)
    wrong = path.read_bytes()
    status, outcome, detail = verified(millpond, "--all")
    assert (status, outcome) == (1, "wrong")
    assert "it could not be prepared anew: image guest is refused" in detail
    assert detail.startswith("used by web, ") == used
    assert bases(millpond) == ([path.name] if used else [])
    assert millpond.host().template_store.unfinished() == []
    (kept,) = (millpond.host().template_store.sidecar / "quarantine").iterdir()
    assert kept.read_bytes() == wrong
    millpond.ok("image", "add", workdir / "guest.qcow2", "--name", "again")
    if used:
        assert verified(millpond, "guest")[:2] == (0, "replaced")
    (made,) = millpond.json("cache", "fetch", "guest")
    assert path.read_bytes() == (workdir / "guest.qcow2").read_bytes() != wrong


def test_a_wrong_blank_template_is_set_aside_unless_disks_stand_on_it(millpond, image):
    """Formatted again it would be another file system beneath them."""
    create(millpond, "web", "--swap", "16M")
    millpond.ok("cache", "verify", "--all")
    flip(millpond.bases / "swap_16")
    assert verified(millpond, "swap_16")[:2] == (1, "wrong")
    assert "swap_16" in bases(millpond)
    millpond.ok("server", "delete", "web")
    assert verified(millpond, "swap_16")[:2] == (0, "set aside")
    assert "swap_16" not in bases(millpond)


def test_fetched_ahead_of_need_is_what_a_server_uses(millpond, image):
    (made,) = millpond.json("cache", "fetch", "guest")
    create(millpond, "web")
    assert bases(millpond) == [made["volume"]]
    (other,) = millpond.json("cache", "fetch", "guest", "--format", "qcow2")
    assert other["format"] == "qcow2"
    assert millpond.ok("cache", "list").count("guest") == 2


def test_prune_and_verify_speak_of_images(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    millpond.ok("cache", "fetch", "guest")
    assert millpond.ok("cache", "pin", "guest") == "pinned the template of guest (raw)\n"
    (pinned,) = millpond.json("cache", "pin", "guest")
    assert (pinned["image_name"], bool(pinned["pinned_by"])) == ("guest", True)
    assert millpond.ok("cache", "unpin", "guest") == "unpinned the template of guest (raw)\n"
    heading, verified = millpond.ok("cache", "verify", "guest").splitlines()
    assert (heading.split()[0], verified.split()[0]) == ("Image", "guest")
    told = millpond.ok("cache", "prune", "--all-unused", "--dry-run").splitlines()
    assert told[0].startswith("would remove the template of guest (raw, ")
    assert told[1].startswith("would free ")
    done = millpond.ok("cache", "prune", "--all-unused").splitlines()
    assert done == [
        each.replace("would remove", "removed").replace("would free", "freed") for each in told
    ]
    assert millpond.ok("cache", "prune") == "freed 0 B\n"
    (removed,) = millpond.json("image", "remove", "guest")
    assert removed["name"] == "guest"
