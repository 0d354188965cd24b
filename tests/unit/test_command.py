"""What the command answers before anything of a host is asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.errors import StateNotWritable

COMMAND = [sys.executable, "-c", "from millpond.cli.entry import main; main()"]


def run(*words, **options):
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, check=False, **options
    )


def test_ctrl_c_while_it_is_loaded_is_no_traceback(tmp_path):
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = run("server", "list", env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (130, "")


def test_help_is_a_word_as_well():
    assert run("help", "server", "disk").stdout == run("server", "disk", "--help").stdout
    assert run("help").stdout == run("--help").stdout


def test_the_help_of_doctor_promises_no_commands():
    assert "COMMAND" not in run("doctor", "--help").stdout


@pytest.fixture
def configured(tmp_path):
    def write(text):
        path = tmp_path / "millpond.conf"
        path.write_text(f"[DEFAULT]\nstate_path = {tmp_path}/state\n{text}")
        return ("--config-file", path)

    return write


def test_config_check_prints_json(configured):
    told = configured("")
    found = json.loads(run(*told, "config", "check", "--json").stdout)
    assert found["files"] == [str(told[1])]
    assert "host local at qemu:///system" in found["hosts"]["local"][0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[flavor:x]\nvcpus = many", "vcpus in {}: 'many' is not a whole number\n"),
        ("[libvirt]\nimages_type = raw # fast", "(a comment needs a line of its own)\n"),
    ],
)
def test_a_value_that_cannot_be_is_explained(configured, text, sentence):
    told = configured(text)
    done = run(*told, "config", "check")
    assert done.returncode == 2
    assert sentence.format(told[1]) in done.stderr


def test_a_missing_section_of_a_host_is_said_once(configured):
    done = run(*configured("enabled_hosts = oak"), "config", "check")
    first, hint = done.stderr.splitlines()
    assert "there is no section [host:oak]" in first
    assert hint.startswith("  hint:")


def test_an_empty_name_is_nobody_s(configured):
    done = run(*configured(""), "server", "show", "")
    assert (done.returncode, "there is no server ''" in done.stderr) == (3, True)


def test_a_file_system_that_is_read_only_is_not_a_matter_of_rights():
    path = Path("/state")
    assert "mount" in StateNotWritable(path, "Read-only file system").advice
    assert "Without root" in StateNotWritable(path, "Permission denied").advice


def test_an_address_that_is_not_fetched_says_which_are(configured):
    done = run(*configured(""), "image", "add", "ftp://localhost/x.qcow2")
    assert (done.returncode, "http:// and https:// are" in done.stderr) == (2, True)


def test_the_digest_of_a_file_is_compared(configured, tmp_path):
    (tmp_path / "x.raw").write_bytes(bytes(512))
    told = configured("")
    wrong = run(*told, "image", "add", tmp_path / "x.raw", "--digest", f"sha256:{'0' * 64}")
    assert (wrong.returncode, "is not the one that was stated" in wrong.stderr) == (5, True)
    assert run(*told, "image", "list", "--json").stdout == "[]\n"
    right = subprocess.run(["sha256sum", tmp_path / "x.raw"], capture_output=True, text=True)
    said = f"sha256:{right.stdout.split()[0]}"
    assert run(*told, "image", "add", tmp_path / "x.raw", "--digest", said).returncode == 0


@pytest.mark.parametrize(
    "said",
    [
        "hw_disk_bus=floppy",
        "hw_vif_model=token-ring",
        "hw_firmware_type=efi",
        "hw_machine_type=a b",
        "os_command_line=a\tb",
    ],
)
def test_a_property_without_sense_is_refused_when_the_image_is_added(configured, tmp_path, said):
    (tmp_path / "x.raw").write_bytes(bytes(512))
    done = run(*configured(""), "image", "add", tmp_path / "x.raw", "--property", said)
    assert done.returncode == 2
    assert f"image property {said.partition('=')[0]}: " in done.stderr


VERBS = [
    "server list",
    "server show x",
    "server start x",
    "server stop x",
    "server reboot x",
    "server resize x --disk 2G",
    "server delete x",
    "server migrate x",
    "server console x",
    "server snapshot x y",
    "server disk add x --size 1G",
    "server create x --image y",
    "image list",
    "image show x",
    "image remove x",
    "cache list",
    "cache prune",
    "pool list",
    "host list",
    "explain x",
    "transition status",
]


@pytest.mark.parametrize("verb", VERBS)
def test_somebody_who_may_not_read_the_state_is_told_so(verb, room):
    """B48"""
    (room / "state" / "servers").mkdir(parents=True, mode=0o750)
    (room / "state").chmod(0o750)
    room.chmod(0o755)
    config = room / "millpond.conf"
    config.write_text(f"[DEFAULT]\nstate_path = {room}/state\n")
    config.chmod(0o644)
    done = run("--config-file", config, *verb.split(), user="nobody", group="nogroup", cwd="/")
    assert done.returncode == 8, done.stderr
    sentence, hint = done.stderr.splitlines()
    assert sentence == f"millpond: the state directory {room}/state is not yours to read"
    assert "Without root" in hint


def test_the_verbs_of_servers_that_copy_nothing_load_no_inspection_of_images():
    code = "import sys, millpond.cli.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "millpond.servers.delete" in loaded
    assert not {"millpond.images.receive", "placement", "openstack", "os_brick"} & set(loaded)


@pytest.mark.parametrize("verb", ["stop", "show", "list"])
def test_a_verb_that_was_asked_for_loads_no_sibling_of_its_own_module(verb):
    code = f"""if True:
        import sys
        from millpond.cli import main
        main.load_command("server", ["server", {verb!r}])
        print(*(each for each in sys.modules if each.startswith("millpond.cli.server_")))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["millpond.cli.server_lines"]


GROUPS = ("image", "server", "server disk", "server nic", "server cdrom", "cache", "host", "pool")


@pytest.mark.parametrize("group", GROUPS)
def test_what_a_verb_does_is_told_in_one_line_of_a_terminal(group):
    told = run(*group.split(), "--help", env={"COLUMNS": "80"}).stdout
    lines = told.partition("Commands:")[2].splitlines()
    assert lines
    assert not [each for each in lines if each.endswith("...")]


def test_the_help_of_servers_begins_where_a_newcomer_does():
    told = run("server", "--help").stdout
    commands = told[told.index("Commands:") :].splitlines()[1:]
    assert [each.split()[0] for each in commands[:4]] == ["create", "list", "show", "start"]
