"""Several hosts: which one a server goes to, what it takes there, and hosts that are gone."""

import json

import pytest

from tests.support.millpond import converted
from tests.support.multi_host import NAMES

FILTER = "[scheduler]\nfilter_hosts_by_image_type_support = true"
SMALL = ("--memory", "16M")


@pytest.fixture
def images(multi_host, micro_guest, workdir):
    """By format; each bears the format's name."""
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    for format in ("qcow2", "vmdk"):
        multi_host.ok("image", "add", converted(micro_guest, format, workdir), "--name", format)
    return multi_host


def create(multi_host, name, image, *words):
    return multi_host.ok("server", "create", name, "--image", image, *SMALL, *words)


def refused(multi_host, name, image, *words):
    status, message = multi_host.fails("server", "create", name, "--image", image, *SMALL, *words)
    assert multi_host.json("server", "list") == []
    return status, message


def test_nothing_of_the_hosts_lies_here(images):
    create(images, "web", "qcow2")
    assert not any(images.place.iterdir())
    assert images.volumes(images.where("web"))


def test_a_server_goes_where_its_image_is_taken(images):
    images.configure(
        {
            "alder": "image_type_exclude_list = vmdk, qcow2",
            "birch": "image_type_exclude_list = vmdk",
        },
        rest=FILTER,
    )
    create(images, "one", "vmdk")
    create(images, "two", "qcow2")
    assert images.where("one") == "cedar"
    assert images.where("two") in ("birch", "cedar")
    assert (
        "lacks COMPUTE_IMAGE_TYPE_VMDK"
        in images.fails("server", "create", "three", "--image", "vmdk", "--host", "alder")[1]
    )


def test_no_valid_host_names_the_trait_and_what_each_host_lacks(images):
    images.configure(dict.fromkeys(NAMES, "image_type_exclude_list = vmdk"), rest=FILTER)
    status, message = refused(images, "one", "vmdk")
    assert status == 6
    assert "none has COMPUTE_IMAGE_TYPE_VMDK" in message
    assert all(f"{name}: it lacks COMPUTE_IMAGE_TYPE_VMDK" in message for name in NAMES)
    assert images.taken_by() == set()


def test_without_the_filter_any_host_is_good(images):
    images.configure(dict.fromkeys(NAMES, "image_type_exclude_list = vmdk"))
    create(images, "one", "vmdk")
    assert images.where("one") in NAMES


def test_what_a_server_takes_comes_and_goes_with_it(images):
    create(images, "web", "qcow2", "--disk", "2G")
    deployment = images.deployment()
    web = deployment.server("web")
    placed = deployment.scheduler.placement.allocations
    host = deployment.scheduler.reporter.providers()[web.host]

    def taken(gibibytes):
        return {
            host.host: {"VCPU": 1, "MEMORY_MB": 16},
            host.pools["nova-disks-pool"]: {"DISK_GB": gibibytes},
        }

    assert placed.of(web.id).held == taken(2)
    images.ok("server", "disk", "add", "web", "--size", "1G")
    images.ok("server", "resize", "web", "--disk", "3G")
    assert placed.of(web.id).held == taken(4)
    images.ok("server", "stop", "web", "--force")  # this guest lets no disk go
    images.ok("server", "disk", "remove", "web", "disk.data0")
    assert placed.of(web.id).held == taken(3)
    images.ok("server", "delete", "web")
    assert images.taken_by() == set()


def test_a_disk_that_does_not_fit_is_refused_and_nothing_has_changed(images):
    create(images, "web", "qcow2", "--disk", "2G")
    for words in (
        ("server", "disk", "add", "web", "--size", "9G"),
        ("server", "resize", "web", "--disk", "9G"),
    ):
        assert "there is no room" in images.fails(*words)[1]
    assert images.ok("doctor", "--placement").endswith("no problem\n")
    (server,) = images.json("server", "list")
    assert server["state"] == "running"
    sizes = {disk["role"]: disk["size"] for disk in server["disks"]}
    assert (sizes["disk"], len(sizes)) == (2 * 1024**3, 2)


def test_the_native_host_comes_first_and_then_the_one_with_the_template(images):
    images.configure({"cedar": "images_type_mapping = qcow2:qcow2"})
    create(images, "native", "qcow2")
    assert images.where("native") == "cedar"
    create(images, "first", "vmdk")
    create(images, "second", "vmdk")
    assert images.where("second") == images.where("first")


def test_a_host_that_is_gone_gets_no_servers_and_keeps_those_it_has(images, host_daemons):
    images.configure({name: "image_type_exclude_list = vmdk" for name in NAMES[1:]}, rest=FILTER)
    create(images, "web", "vmdk")
    assert images.where("web") == "alder"
    host_daemons["alder"].stop()
    try:
        listed = {each["name"]: each for each in images.json("host", "list", "--refresh")}
        assert listed["alder"]["state"] == "does not answer"
        assert listed["birch"]["state"] == "up"
        (server,) = images.json("server", "list")
        assert server["state"] == "unknown: host alder does not answer"
        assert (
            "alder: it is disabled"
            in images.fails("server", "create", "two", "--image", "vmdk", *SMALL)[1]
        )
        create(images, "three", "qcow2")
        for words in (("pool", "list"), ("cache", "list"), ("explain", "vmdk")):
            done = images.run(*words)
            assert done.returncode == 0
            assert "cannot reach libvirt" in done.stderr
            assert "birch" in done.stdout
            assert images.fails(*words, "--host", "alder")[0] == 6
    finally:
        host_daemons["alder"].start()
    images.ok("host", "list", "--refresh")
    create(images, "four", "vmdk")
    images.ok("server", "delete", "web", "three", "four")


def test_a_format_that_a_host_loses_is_reported_no_more(images):
    images.configure(rest=FILTER)
    create(images, "one", "vmdk")
    deployment = images.deployment()
    uuids = {name: found.host for name, found in deployment.scheduler.reporter.providers().items()}
    providers = deployment.scheduler.placement.providers
    deployment.scheduler.placement.make_traits(["CUSTOM_ROOM_7"])
    providers.change_traits(uuids["birch"], lambda now: now | {"CUSTOM_ROOM_7"})
    images.configure({"birch": "image_type_exclude_list = vmdk"}, rest=FILTER)
    images.ok("host", "list", "--refresh")
    traits = providers.traits(uuids["birch"])
    assert "COMPUTE_IMAGE_TYPE_VMDK" not in traits
    assert {"COMPUTE_IMAGE_TYPE_QCOW2", "CUSTOM_ROOM_7"} <= traits
    assert "COMPUTE_IMAGE_TYPE_VMDK" in providers.traits(uuids["alder"])


def test_flavours_and_images_ask_for_traits(images):
    images.configure(rest="[flavor:fast]\nmemory = 16M\nextra_specs = trait:CUSTOM_FAST=required")
    words = ("server", "create", "web", "--image", "raw", "--flavor", "fast")
    assert "CUSTOM_FAST" in images.fails(*words)[1]
    deployment = images.deployment()
    images.ok("host", "list", "--refresh")
    deployment.scheduler.placement.make_traits(["CUSTOM_FAST"])
    uuid = deployment.scheduler.reporter.providers()["birch"].host
    deployment.scheduler.placement.providers.change_traits(uuid, lambda now: now | {"CUSTOM_FAST"})
    images.ok(*words)
    assert images.where("web") == "birch"


def test_a_lost_placement_is_told_anew_and_what_servers_take_is_put_right(images):
    create(images, "web", "qcow2")
    for path in (images.state / "placement").glob("placement.sqlite*"):
        path.unlink()
    create(images, "two", "qcow2")
    status, found = images.fails("doctor", "--placement")[0], images.run("doctor", "--placement")
    assert status == 1
    assert "server 'web' takes nothing in Placement" in found.stdout
    images.ok("doctor", "--placement", "--mend")
    assert images.ok("doctor", "--placement").endswith("no problem\n")


def test_explain_and_a_dry_run_show_every_host(images):
    images.configure({"birch": "image_type_exclude_list = vmdk"}, rest=FILTER)
    found = images.json("explain", "vmdk")
    verdicts = {each["host"]: each for each in found["verdicts"]}
    assert verdicts["birch"]["lacks"] == ["COMPUTE_IMAGE_TYPE_VMDK"]
    assert verdicts["alder"]["state"] == "fits"
    assert {each["host"] for each in found["hosts"]} == set(NAMES)
    dry = images.json("server", "create", "web", "--image", "vmdk", *SMALL, "--dry-run")
    assert dry["host"] in ("alder", "cedar")
    assert images.json("server", "list") == []
    assert images.taken_by() == set()


def test_what_one_host_has_given_away_another_may_have(images):
    """A port of the host, say."""
    hosts = set()
    for name in ("a", "b"):
        words = ("--image", "qcow2", *SMALL, "--no-start", "--vnc", "5977")
        hosts.add(images.json("server", "create", name, *words)["host"])
    assert len(hosts) == 2


def test_two_hosts_with_one_uuid_are_refused(multi_host, host_daemons):
    multi_host.configure({"birch": f"connection_uri = {host_daemons['alder'].uri}&again=yes"})
    assert "alder and birch have one UUID" in multi_host.fails("host", "list")[1]


def test_a_host_that_never_answered_is_said(images):
    images.configure({"birch": "connection_uri = qemu:///system?socket=/nowhere"})
    create(images, "web", "qcow2")
    (birch,) = (each for each in images.json("host", "list") if each["name"] == "birch")
    assert birch["state"] == "does not answer"
    assert "/nowhere" in birch["problem"]
    assert images.where("web") != "birch"
    words = ("server", "create", "x", "--image", "raw", "--host", "birch")
    assert "there is no host 'birch'" in images.fails(*words)[1]
    remembered = json.loads((images.state / "placement" / "reported.json").read_text())
    assert remembered["hosts"]["birch"]["gone"]  # nobody waits for it again so soon


def test_placement_that_is_down_or_refuses_is_said_and_nothing_is_made(images):
    where = "[placement]\nauth_type = none\nendpoint_override = http://127.0.0.1:9"
    images.configure(rest=where)
    status, message = refused(images, "web", "qcow2")
    assert status == 9
    assert "Placement" in message


DOWN = (
    "[placement]\nauth_type = none\nendpoint_override = http://127.0.0.1:9\nconnect_retries = 0\n"
)


def test_a_server_can_go_while_placement_is_down(images):
    create(images, "web", "qcow2")
    text = images.config.read_text()
    images.config.write_text(text + DOWN)
    assert images.fails("server", "resize", "web", "--disk", "1G")[0] == 9
    assert images.json("server", "list")[0]["state"] == "running"
    status, _ = images.fails("server", "delete", "web")
    assert status == 9
    (left,) = images.json("server", "list")
    assert left["state"] == "interrupted (delete: release)"
    done = images.run("server", "delete", "web", "--force")
    assert done.returncode == 0
    assert "web may be counted wrongly in Placement" in done.stderr
    assert images.json("server", "list") == []
    images.config.write_text(text)
    assert "is no server any more" in images.run("doctor", "--placement").stdout
    images.ok("doctor", "--placement", "--mend")
    assert images.taken_by() == set()


@pytest.mark.full
def test_a_server_can_be_given_up_with_its_host(images, host_daemons):
    create(images, "one", "raw", "--host", "alder")
    create(images, "two", "raw", "--host", "birch")
    host_daemons["alder"].stop()
    try:
        assert images.fails("server", "delete", "one")[0] == 6
        done = images.run("server", "delete", "one", "--force")
        assert done.returncode == 0
        assert "the domain and the disks of one stay behind" in done.stderr
    finally:
        host_daemons["alder"].start()
    images.configure(enabled=("alder", "cedar"))
    assert (
        "is on host 'birch', which is not configured" in images.fails("server", "start", "two")[1]
    )
    assert "birch" in images.run("doctor").stdout
    images.ok("server", "delete", "two", "--force")
    assert images.json("server", "list") == []
    assert images.taken_by() == set()


@pytest.mark.full
def test_a_copy_of_a_domain_elsewhere_is_told_and_never_adopted(images, host_daemons):
    create(images, "web", "raw", "--host", "alder", "--no-start")
    with host_daemons["alder"].connect() as alder, host_daemons["birch"].connect() as birch:
        birch.defineXML(alder.lookupByName("web").XMLDesc())
    told = images.run("doctor", "--host", "birch").stdout
    assert "domain 'web' is that of a server which is on host alder" in told
    images.ok("doctor", "--adopt")
    assert images.where("web") == "alder"


@pytest.mark.full
def test_a_host_under_another_name_is_refused_and_keeps_nobody_from_the_others(images):
    create(images, "web", "raw", "--host", "alder", "--no-start")
    text = images.config.read_text()
    renamed = text.replace("[host:alder]", "[host:aspen]").replace("= alder,", "= aspen,")
    images.config.write_text(renamed)
    words = ("server", "create", "two", "--image", "raw", *SMALL, "--host", "aspen")
    assert "aspen: the cache" in images.fails(*words)[1]
    create(images, "two", "raw", "--no-start")
    assert images.json("server", "list")[1]["state"] == "unknown: host alder is not configured"
    images.config.write_text(text)
    images.ok("server", "start", "web")


def test_servers_of_a_single_host_are_counted_when_a_second_one_comes(images):
    images.configure(enabled=("alder",))
    create(images, "web", "raw", "--no-start")
    assert not (images.state / "placement").exists()
    images.configure()
    images.ok("host", "list", "--refresh")
    assert images.taken_by() == {images.deployment().server("web").id}
    assert "no problem" in images.ok("doctor", "--placement")
