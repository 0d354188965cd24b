"""VNC, CPU, video, TPM, secure boot and descriptions by option, and the domain in an editor."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import libvirt
import pytest
from lxml import etree

from tests.support.millpond import COMMAND
from tests.support.waiting import wait_for

OVMF = Path("/usr/share/OVMF")


@pytest.fixture
def micro(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "micro")
    return ("--image", "micro", "--memory", "32M", "--network", "none")


def running(connection, name="web"):
    return etree.fromstring(connection.lookupByName(name).XMLDesc())


def facts(millpond, name="web"):
    lines = (each.partition("  ") for each in millpond.ok("server", "show", name).splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def test_a_server_has_what_is_asked_for(millpond, micro, connection):
    options = ("--vnc", "auto", "--cpu", "Nehalem", "--video", "vga", "--description", "the shop")
    made = millpond.json("server", "create", "web", *micro, *options)
    assert made["devices"]["vnc"] == {"address": "127.0.0.1", "port": 0}
    shown = facts(millpond)
    assert (shown["CPU"], shown["Video"]) == ("Nehalem", "vga")
    assert shown["Description"] == "the shop"
    domain = running(connection)
    display = domain.find("devices/graphics")
    assert shown["VNC"] == f"127.0.0.1:{display.get('port')}"
    port = int(display.get("port"))
    assert millpond.json("server", "show", "web")["display"] == {
        "address": "127.0.0.1",
        "port": port,
    }
    assert (display.get("type"), display.get("listen")) == ("vnc", "127.0.0.1")
    assert domain.findtext("cpu/model") == "Nehalem"
    assert domain.find("devices/video/model").get("type") == "vga"
    assert domain.findtext("description") == "the shop"
    agent = domain.find("devices/channel/target")
    assert agent.get("name") == "org.qemu.guest_agent.0"
    millpond.wait_for_console(made["id"], "READY")


def test_it_can_be_changed_and_taken_back(millpond, micro, connection):
    millpond.ok("server", "create", "web", *micro)
    assert running(connection).find("devices/graphics") is None
    done = millpond.ok("server", "set", "web", "--vnc", "5997", "--cpu", "Nehalem")
    assert "; reboot it for that" in done
    assert running(connection).find("devices/graphics") is None
    connection.lookupByName("web").setMetadata(0, "by virsh", None, None, 2)
    millpond.ok("server", "reboot", "web", "--hard")
    domain = running(connection)
    assert domain.find("devices/graphics").get("port") == "5997"
    assert domain.findtext("cpu/model") == "Nehalem"
    assert domain.findtext("description") == "by virsh"

    millpond.ok("server", "stop", "web", "--force")
    words = ("--vnc", "none", "--cpu", "default", "--description", "mine")
    assert "reboot" not in millpond.ok("server", "set", "web", *words)
    millpond.ok("server", "start", "web")
    domain = running(connection)
    assert domain.find("devices/graphics") is None
    assert domain.findtext("cpu/model") != "Nehalem"
    assert domain.findtext("description") == "mine"
    assert not {"VNC", "CPU"} & facts(millpond).keys()


def test_what_the_host_does_not_have_is_refused_before_anything_is_made(millpond, micro):
    millpond.ok("server", "create", "other", *micro, "--no-start", "--vnc", "5998")
    for options, sentence in (
        (("--vnc", "5998"), "port 5998 is that of server 'other'"),
        (("--vnc", "0.0.0.0:5998"), "port 5998 is that of server 'other'"),
        (("--vnc", "80"), "port 80 is out of range"),
        (("--vnc", "host:5901"), "'host' is not an IP address"),
        (("--video", "nosuch"), "does not offer 'nosuch'"),
        (("--cpu", "nosuch"), "does not offer 'nosuch'"),
        (("--cpu", "host-passthrough"), "does not offer 'host-passthrough'"),
        (("--secure-boot", "--firmware", "bios"), "it needs UEFI"),
    ):
        status, message = millpond.fails("server", "create", "web", *micro, *options)
        assert (status, sentence in message) == (2, True), message
    assert [each["name"] for each in millpond.json("server", "list")] == ["other"]
    status, message = millpond.fails("server", "set", "other", "--video", "nosuch")
    assert status == 2
    assert millpond.json("server", "show", "other")["devices"]["video"] == ""


@pytest.mark.skipif(shutil.which("swtpm") is not None, reason="swtpm is installed")
def test_a_tpm_needs_swtpm(millpond, micro):
    status, message = millpond.fails("server", "create", "web", *micro, "--tpm")
    assert (status, "install swtpm" in message) == (2, True)


@pytest.mark.skipif(shutil.which("swtpm") is None, reason="no swtpm: apt install swtpm")
def test_a_tpm(millpond, micro, connection):
    millpond.ok("server", "create", "web", *micro, "--tpm")
    assert running(connection).find("devices/tpm/backend").get("version") == "2.0"


@pytest.mark.skipif(not OVMF.exists(), reason="no OVMF: apt install ovmf")
def test_secure_boot(millpond, micro, connection):
    made = millpond.json("server", "create", "web", *micro, "--memory", "64M", "--secure-boot")
    assert (made["hardware"]["firmware"], "q35" in made["hardware"]["machine"]) == ("uefi", True)
    domain = running(connection)
    assert domain.find("os/loader").get("secure") == "yes"
    assert ".ms." in domain.find("os/nvram").get("template")
    assert domain.find("features/smm").get("state") == "on"
    millpond.ok("server", "reboot", "web", "--hard")
    assert running(connection).find("os/loader").get("secure") == "yes"


def digest(libvirtd, path):
    return libvirtd.run("sha256sum", path).stdout.split()[0]


@pytest.mark.skipif(not OVMF.exists(), reason="no OVMF: apt install ovmf")
def test_secure_boot_of_a_server_that_is_there(millpond, micro, connection, libvirtd):
    """The variables of its firmware are made again, from the template with the keys."""
    millpond.ok("server", "create", "web", *micro, "--memory", "64M", "--firmware", "uefi")
    variables = running(connection).findtext("os/nvram")
    status, message = millpond.fails("server", "set", "web", "--secure-boot")
    assert (status, "stopped for --secure-boot" in message) == (4, True)
    millpond.ok("server", "stop", "web", "--force")
    domain = connection.lookupByName("web")
    domain.setMetadata(0, "by virsh", None, None, 2)
    for option, shown in (("--secure-boot", "yes"), ("--no-secure-boot", None)):
        libvirtd.run("sh", "-c", f"echo written >> {variables}")
        millpond.ok("server", "set", "web", option)
        assert facts(millpond).get("Secure boot") == shown
        assert not domain.isActive()
        reset = digest(libvirtd, variables)
        millpond.ok("server", "start", "web")
        boot = running(connection).find("os")
        assert reset == digest(libvirtd, boot.find("nvram").get("template"))
        if shown:
            assert boot.find("loader").get("secure") == "yes"
            assert ".ms." in boot.find("nvram").get("template")
        assert running(connection).findtext("description") == "by virsh"
        assert boot.findtext("nvram") == variables
        millpond.ok("server", "stop", "web", "--force")


HOOK = """#!/bin/sh
[ "$2" = started ] || exit 0
touch /etc/libvirt/paused
sleep 5
"""
"""libvirt waits for it before it answers that a domain is started."""


@pytest.fixture
def slow_start(libvirtd):
    """Starts are slow enough to be interrupted in the middle of them."""
    hook, paused = (libvirtd.directory / "etc" / each for each in ("hooks/qemu", "paused"))
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
    libvirtd.restart()  # which looks for hooks only as it begins
    yield paused
    hook.unlink()
    paused.unlink(missing_ok=True)
    libvirtd.restart()


@pytest.mark.skipif(not OVMF.exists(), reason="no OVMF: apt install ovmf")
def test_killed_while_its_firmware_is_reset_a_server_is_off(millpond, micro, slow_start):
    """It is started for that, and its guest does nothing."""
    words = (*micro, "--memory", "64M", "--firmware", "uefi", "--no-start")
    millpond.ok("server", "create", "web", *words)
    before = millpond.server("web")
    asked = [COMMAND, "--config-file", millpond.config, "server", "set", "web", "--secure-boot"]
    with subprocess.Popen(asked, stdin=subprocess.DEVNULL) as process:
        wait_for(slow_start.exists, 60)
        process.kill()
    assert process.returncode == -signal.SIGKILL

    def is_off():
        with contextlib.closing(libvirt.open(millpond.uri)) as connection:
            return not connection.lookupByName("web").isActive()

    wait_for(is_off, 30)
    assert millpond.console(before.id) == ""
    assert millpond.server("web") == before
    millpond.ok("server", "set", "web", "--secure-boot")
    millpond.ok("server", "start", "web")
    assert facts(millpond)["Secure boot"] == "yes"


@pytest.mark.skipif(not OVMF.exists(), reason="no OVMF: apt install ovmf")
def test_secure_boot_waits_for_a_guest_that_is_saved(millpond, micro, connection):
    millpond.ok("server", "create", "web", *micro, "--memory", "64M", "--firmware", "uefi")
    domain = connection.lookupByName("web")
    domain.managedSave()
    status, message = millpond.fails("server", "set", "web", "--secure-boot")
    assert (status, "start it and stop it first" in message) == (4, True), message
    assert domain.hasManagedSaveImage()
    assert "secure-boot" not in domain.XMLDesc()


def test_secure_boot_is_not_for_servers_with_a_bios(millpond, micro):
    millpond.ok("server", "create", "web", *micro, "--no-start")
    status, message = millpond.fails("server", "set", "web", "--secure-boot")
    assert (status, "it needs UEFI" in message) == (2, True)


@pytest.fixture
def editor(workdir, monkeypatch):
    """An editor that does to the file what a program of sed says."""

    def use(program):
        path = workdir / "editor"
        path.write_text(f'#!/bin/sh\nexec sed -i {program!r} "$1"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("VISUAL", str(path))
        monkeypatch.setenv("TMPDIR", str(workdir))

    return use


def drafts(workdir):
    return [path for path in workdir.glob("web-*.xml")]


def test_the_domain_can_be_edited(millpond, micro, connection, editor, workdir):
    millpond.ok("server", "create", "web", *micro)
    editor("s|<on_crash>.*|<on_crash>preserve</on_crash>|")
    assert "; reboot it for that" in millpond.ok("server", "edit", "web")
    assert drafts(workdir) == []
    millpond.ok("server", "reboot", "web", "--hard")
    assert running(connection).findtext("on_crash") == "preserve"
    editor("")
    assert "is unchanged" in millpond.ok("server", "edit", "web")


@pytest.mark.parametrize(
    ("program", "status", "sentence"),
    [
        ("s|<vcpu.*|<vcpu>2</vcpu>|", 2, "the record of server 'web' says otherwise: 2 vCPUs"),
        ('s|<memory.*|<memory unit="MiB">64</memory>|', 2, "64 MiB of memory"),
        ("s|<uuid>.|<uuid>x|", 2, "the UUID of server 'web' cannot be changed"),
        ("s|</devices>||", 2, "it is not well-formed"),
        ("s|<on_crash>.*|<on_crash>perhaps</on_crash>|", 2, "libvirt refuses it: "),
        ('s|dev=.vda.|dev="vdq"|', 2, "says otherwise"),
    ],
)
def test_what_contradicts_the_record_is_not_written(
    millpond, micro, connection, editor, workdir, program, status, sentence
):
    millpond.ok("server", "create", "web", *micro, "--no-start")
    before = connection.lookupByName("web").XMLDesc()
    editor(program)
    code, message = millpond.fails("server", "edit", "web")
    assert code == status
    assert sentence in message
    (draft,) = drafts(workdir)
    assert f"what you wrote is kept in {draft}" in message
    assert stat.S_IMODE(draft.stat().st_mode) == 0o600
    assert connection.lookupByName("web").XMLDesc() == before


def test_a_draft_that_is_no_text_is_refused(millpond, micro, editor, workdir):
    millpond.ok("server", "create", "web", *micro, "--no-start")
    editor("")
    (workdir / "editor").write_text("#!/bin/sh\nprintf '\\351' >> \"$1\"\n")
    code, message = millpond.fails("server", "edit", "web")
    assert (code, "what you wrote cannot be read" in message) == (2, True), message
    (draft,) = drafts(workdir)
    assert f"what you wrote is kept in {draft}" in message


def test_an_editor_that_is_no_command_is_refused(millpond, micro, monkeypatch, workdir):
    millpond.ok("server", "create", "web", *micro, "--no-start")
    monkeypatch.setenv("TMPDIR", str(workdir))
    monkeypatch.setenv("VISUAL", "vi 'x")
    code, message = millpond.fails("server", "edit", "web")
    assert (code, "is no command" in message) == (2, True), message
    assert drafts(workdir) == []


def test_an_editor_that_fails_changes_nothing(millpond, micro, monkeypatch, workdir):
    millpond.ok("server", "create", "web", *micro, "--no-start")
    monkeypatch.setenv("TMPDIR", str(workdir))
    for editor in ("false", "no-such-editor"):
        monkeypatch.setenv("VISUAL", editor)
        code, message = millpond.fails("server", "edit", "web")
        assert code != 0
        assert editor in message
    assert os.listdir(workdir)
