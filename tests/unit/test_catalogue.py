"""The catalogue: what has a record is complete, whoever adds, removes or dies at the same time."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha512
from pathlib import Path

import pytest

from millpond.errors import (
    Ambiguous,
    BadName,
    BadOption,
    DamagedRecord,
    FileNotReadable,
    ImageInUse,
    ImageNotFound,
    ImageRefused,
    MillpondError,
    NameTaken,
    NewerRecord,
    StateNotWritable,
)
from millpond.images.intake import Intake
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId
from millpond.system.locks import Locks
from tests.support.image_files import KiB, MiB, converted, raw_file


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state" / "images"


@pytest.fixture
def catalogue(directory: Path) -> Intake:
    return Intake(directory)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return raw_file(tmp_path)


def left_in(directory: Path) -> set[str]:
    """All files of a catalogue but its locks."""
    return {
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and path.parent.name != "locks"
    }


def files_of(*images: Image) -> set[str]:
    return {
        name
        for each in images
        for name in (f"blobs/{each.digest}", f"indexes/{each.digest}", f"records/{each.id}.json")
    }


# Adding


def test_an_added_image_is_found_by_name_and_id(catalogue: Intake, disk: Path) -> None:
    image = catalogue.add(disk, name="guest", properties={"hw_disk_bus": "scsi"})

    assert (image.format, image.size, image.virtual_size) == (ImageFormat.RAW, 4 * MiB, 4 * MiB)
    assert image.digest == sha512(disk.read_bytes()).hexdigest()
    assert image.properties == {"hw_disk_bus": "scsi"}
    for text in ("guest", image.id):
        assert catalogue.get(text) == image
    assert catalogue.get(image.id[:8], shortened=True) == image
    for text, shortened in ((image.id[:8], False), (image.id[:7], True), (image.id[1:], True)):
        with pytest.raises(ImageNotFound):
            catalogue.get(text, shortened=shortened)
    assert catalogue.find("guest") == catalogue.find(image.id) == image
    assert catalogue.find(image.id[:8]) is None
    assert catalogue.describe(image.id) == image
    assert catalogue.all() == [image]


def test_another_process_reads_the_same(catalogue: Intake, directory: Path, disk: Path) -> None:
    image = catalogue.add(disk)

    assert Intake(directory).all() == [image]


def test_the_content_is_read_only_and_under_its_digest(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    image = catalogue.add(disk)
    blob = catalogue.local_file(image)

    assert blob == directory / "blobs" / image.digest
    assert stat.S_IMODE(blob.stat().st_mode) == 0o444
    assert blob.stat().st_uid == os.geteuid()
    assert blob.read_bytes() == disk.read_bytes()
    assert b"".join(catalogue.open(image).chunks(MiB)) == disk.read_bytes()[MiB:]
    assert catalogue.locations(image) == (blob.as_uri(),)
    assert left_in(directory) == files_of(image)


def test_the_same_content_is_stored_once(catalogue: Intake, directory: Path, disk: Path) -> None:
    first = catalogue.add(disk, name="first")
    inode = catalogue.local_file(first).stat().st_ino
    second = catalogue.add(disk, name="second", format=ImageFormat.AMI)

    assert second.id != first.id
    assert catalogue.local_file(second).stat().st_ino == inode
    assert left_in(directory) == files_of(first, second)


def test_content_that_has_rotted_is_replaced(catalogue: Intake, disk: Path) -> None:
    first = catalogue.add(disk, name="first")
    blob = catalogue.local_file(first)
    linked = blob.with_name("template")
    os.link(blob, linked)
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.write(b"rot")
    second = catalogue.add(disk, name="second")
    assert catalogue.local_file(first) == catalogue.local_file(second) == blob
    assert (blob.read_bytes(), stat.S_IMODE(blob.stat().st_mode)) == (disk.read_bytes(), 0o444)
    assert linked.read_bytes().startswith(b"rot")  # another file now: cache verify replaces it


def test_good_content_keeps_its_file(catalogue: Intake, disk: Path) -> None:
    """Templates that are links to it take no space."""
    blob = catalogue.local_file(catalogue.add(disk, name="first"))
    inode = blob.stat().st_ino
    assert catalogue.local_file(catalogue.add(disk, name="second")).stat().st_ino == inode


def test_content_that_was_lost_is_stored_again(catalogue: Intake, disk: Path) -> None:
    first = catalogue.add(disk, name="first")
    os.truncate(catalogue.local_file(first), 512)

    catalogue.add(disk, name="second")

    assert catalogue.local_file(first).read_bytes() == disk.read_bytes()


@pytest.mark.parametrize(
    ("file", "name", "format"),
    [
        ("debian-12.qcow2", "debian-12", ImageFormat.QCOW2),
        ("Debian 12.5.QCOW2", "Debian 12.5", ImageFormat.QCOW2),
        ("disk.vpc", "disk", ImageFormat.VHD),
        ("disk.vhd", "disk", ImageFormat.VHD),
        ("root.hds", "root", ImageFormat.PLOOP),
    ],
)
def test_the_name_of_the_file_says_what_is_not_told(
    catalogue: Intake, tmp_path: Path, file: str, name: str, format: ImageFormat
) -> None:
    made = converted(raw_file(tmp_path), format.content.qemu)
    image = catalogue.add(made.rename(tmp_path / file))

    assert (image.name, image.format) == (name, format)


def test_a_suffix_that_says_nothing_is_not_guessed_at(
    catalogue: Intake, directory: Path, tmp_path: Path
) -> None:
    made = converted(raw_file(tmp_path), "qcow2").rename(tmp_path / "cloud.img")

    with pytest.raises(BadOption, match="does not say which format") as caught:
        catalogue.add(made)

    assert caught.value.advice.endswith("say --disk-format qcow2")
    assert not directory.exists()
    assert catalogue.add(made, format=ImageFormat.QCOW2).name == "cloud"


def test_a_version_in_a_name_is_no_suffix(catalogue: Intake, disk: Path) -> None:
    versioned = disk.rename(disk.with_name("debian-12.5"))

    assert catalogue.add(versioned, format=ImageFormat.RAW).name == "debian-12.5"


def test_standard_input_must_be_named_and_described(catalogue: Intake) -> None:
    with pytest.raises(BadOption, match=r"^name:"):
        catalogue.add(Path("-"), format=ImageFormat.RAW)
    with pytest.raises(BadOption, match=r"^disk_format:"):
        catalogue.add(Path("-"), name="guest")


@pytest.mark.parametrize("name", ["a/b", "../up", "-x", "tab\there", "", "x" * 201])
def test_a_name_that_cannot_be_one_is_refused(
    catalogue: Intake, directory: Path, disk: Path, name: str
) -> None:
    if name:
        with pytest.raises(BadName):
            catalogue.add(disk, name=name)
        assert not directory.exists()
    else:
        assert catalogue.add(disk, name=name).name == disk.stem


def test_a_name_is_taken_once(catalogue: Intake, directory: Path, disk: Path) -> None:
    image = catalogue.add(disk, name="guest")
    read: list[int] = []

    with pytest.raises(NameTaken):
        catalogue.add(disk, name="guest", progress=read.append)

    assert not read
    assert left_in(directory) == files_of(image)


def test_what_is_refused_leaves_nothing_behind(
    catalogue: Intake, directory: Path, tmp_path: Path, disk: Path
) -> None:
    ploop = tmp_path / "ploop"
    ploop.mkdir()
    (ploop / "DiskDescriptor.xml").write_text("<Parallels_disk_image/>")
    refused: list[tuple[Path, ImageFormat, type[MillpondError], str]] = [
        (disk, ImageFormat.VMDK, ImageRefused, "content is not"),
        (converted(disk, "qcow2"), ImageFormat.AKI, ImageRefused, "its content is qcow2"),
        (ploop, ImageFormat.PLOOP, ImageRefused, "names no image"),
        (tmp_path, ImageFormat.RAW, FileNotReadable, "it is a directory"),
        (tmp_path / "gone", ImageFormat.RAW, FileNotReadable, "No such file"),
    ]
    for path, format, error, sentence in refused:
        with pytest.raises(error, match=sentence):
            catalogue.add(path, name="guest", format=format)
        assert left_in(directory) == set()
        assert catalogue.all() == []


def test_an_interrupted_add_leaves_nothing_behind(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    def interrupt(_count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalogue.add(disk, progress=interrupt)

    assert left_in(directory) == set()


def test_a_directory_that_cannot_be_written_is_named(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    directory.mkdir(parents=True)
    (directory / "incoming").write_text("not a directory")

    with pytest.raises(StateNotWritable, match=str(directory)):
        catalogue.add(disk)


def test_a_directory_that_cannot_be_read_is_not_taken_for_an_empty_one(
    catalogue: Intake, directory: Path
) -> None:
    directory.mkdir(parents=True)
    (directory / "records").write_text("not a directory")

    with pytest.raises(FileNotReadable, match="Not a directory"):
        catalogue.all()


# Finding


def test_too_little_of_an_id_is_ambiguous(catalogue: Intake, directory: Path, disk: Path) -> None:
    image = catalogue.add(disk, name="one")
    twin = image.id[:-1] + ("0" if image.id[-1] != "0" else "1")
    record = json.loads((directory / "records" / f"{image.id}.json").read_bytes())
    record["image"] |= {"id": twin, "name": "two"}
    (directory / "records" / f"{twin}.json").write_text(json.dumps(record))

    with pytest.raises(Ambiguous) as caught:
        catalogue.get(image.id[:-1], shortened=True)
    assert set(caught.value.matches) == {image.id, twin}
    assert catalogue.get(image.id) == image


@pytest.mark.parametrize("text", ["gone", "", "-", "x" * 300, "é" * 130])
def test_what_is_not_there_is_not_found(catalogue: Intake, disk: Path, text: str) -> None:
    catalogue.add(disk)

    assert catalogue.find(text) is None
    with pytest.raises(ImageNotFound):
        catalogue.get(text)
    with pytest.raises(ImageNotFound):
        catalogue.describe(ImageId(text))


def test_a_catalogue_that_was_never_used_is_empty(catalogue: Intake, directory: Path) -> None:
    assert catalogue.all() == []
    assert catalogue.leftovers() == []
    assert not directory.exists()


def _rewrite(directory: Path, image: Image, **changes: object) -> None:
    path = directory / "records" / f"{image.id}.json"
    record = json.loads(path.read_bytes())
    for key, value in changes.items():
        (record if key == "schema" else record["image"])[key] = value
    path.write_text(json.dumps(record))


def test_a_newer_record_is_not_guessed_at(catalogue: Intake, directory: Path, disk: Path) -> None:
    """It stops no list; but nothing is decided without it."""
    other = catalogue.add(disk, name="other")
    newer = catalogue.add(disk, name="newer")
    _rewrite(directory, newer, schema=2)

    assert catalogue.all() == [other]
    assert catalogue.get("other") == other
    for decide in (
        catalogue.leftovers,
        catalogue.cleanup,
        lambda: catalogue.remove(other),
        lambda: catalogue.add(disk, name="third"),
    ):
        with pytest.raises(NewerRecord):
            decide()
    assert catalogue.all() == [other]


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "00000000-0000-4000-8000-000000000000"},
        {"digest": "../../etc/passwd"},
        {"format": "cow"},
        {"size": "many"},
    ],
)
def test_a_damaged_record_is_named(
    catalogue: Intake, directory: Path, disk: Path, changes: dict[str, object]
) -> None:
    image = catalogue.add(disk)
    _rewrite(directory, image, **changes)

    assert catalogue.all() == []
    with pytest.raises(DamagedRecord, match=image.id):
        catalogue.every()
    with pytest.raises(DamagedRecord):
        catalogue.cleanup()
    assert catalogue.local_file(image).exists()


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"\xff\xfe"])
def test_half_a_record_is_damaged(
    catalogue: Intake, directory: Path, disk: Path, content: bytes
) -> None:
    image = catalogue.add(disk)
    (directory / "records" / f"{image.id}.json").write_bytes(content)

    with pytest.raises(DamagedRecord):
        catalogue.get(image.id)


def test_lost_content_is_said(catalogue: Intake, disk: Path) -> None:
    image = catalogue.add(disk)
    catalogue.local_file(image).unlink()

    with pytest.raises(DamagedRecord, match="is gone"):
        catalogue.local_file(image)


# Saving


def test_a_saved_copy_is_the_callers_own(catalogue: Intake, tmp_path: Path, disk: Path) -> None:
    image = catalogue.add(disk, name="guest")
    done: list[int] = []

    saved = catalogue.save(image, tmp_path / "copy.raw", progress=done.append)

    assert saved == tmp_path / "copy.raw"
    assert saved.read_bytes() == disk.read_bytes()
    assert saved.stat().st_ino != catalogue.local_file(image).stat().st_ino
    assert stat.S_IMODE(saved.stat().st_mode) == 0o644
    assert sum(done) == image.size


def test_a_copy_in_a_directory_is_named_for_the_image(
    catalogue: Intake, tmp_path: Path, disk: Path
) -> None:
    target = tmp_path / "saved"
    target.mkdir()

    saved = catalogue.save(catalogue.add(disk, name="guest"), target)

    assert saved == target / "guest.raw"
    assert list(target.iterdir()) == [saved]


def test_a_file_is_replaced_only_by_force(catalogue: Intake, tmp_path: Path, disk: Path) -> None:
    image = catalogue.add(disk)
    target = tmp_path / "precious"
    target.write_text("precious")

    with pytest.raises(NameTaken):
        catalogue.save(image, target)
    assert target.read_text() == "precious"
    catalogue.save(image, target, force=True)
    assert target.read_bytes() == disk.read_bytes()


def test_an_interrupted_copy_leaves_what_was_there(
    catalogue: Intake, tmp_path: Path, disk: Path
) -> None:
    image = catalogue.add(disk)
    place = tmp_path / "saved"
    place.mkdir()
    (place / "precious").write_text("precious")

    def interrupt(_count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalogue.save(image, place / "precious", force=True, progress=interrupt)

    assert [path.read_text() for path in place.iterdir()] == ["precious"]


def test_content_that_changed_is_not_passed_on(
    catalogue: Intake, tmp_path: Path, disk: Path
) -> None:
    image = catalogue.add(disk)
    blob = catalogue.local_file(image)
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.write(b"rot")

    place = tmp_path / "saved"
    place.mkdir()

    with pytest.raises(DamagedRecord, match="has changed"):
        catalogue.save(image, place / "copy.raw")

    assert not list(place.iterdir())


def test_a_place_that_does_not_exist_is_bad_input(
    catalogue: Intake, tmp_path: Path, disk: Path
) -> None:
    with pytest.raises(BadOption, match="No such file"):
        catalogue.save(catalogue.add(disk), tmp_path / "gone" / "copy.raw")


# Removing


def test_an_image_that_a_server_begins_to_need_stays(catalogue: Intake, disk: Path) -> None:
    """It is recorded after somebody looked, and before the image goes."""
    image = catalogue.add(disk, name="needed")
    with pytest.raises(ImageInUse, match="web"):
        catalogue.remove(image, lambda: ("web",))
    assert catalogue.get("needed") == image
    assert catalogue.local_file(image).exists()


def test_content_goes_with_the_last_image_that_needs_it(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    first, second = (catalogue.add(disk, name=name) for name in ("first", "second"))

    catalogue.remove(first)
    assert left_in(directory) == files_of(second)
    catalogue.remove(second)
    assert left_in(directory) == set()
    with pytest.raises(ImageNotFound):
        catalogue.remove(second)


def test_a_link_to_the_content_outlives_the_image(
    catalogue: Intake, tmp_path: Path, disk: Path
) -> None:
    image = catalogue.add(disk)
    os.link(catalogue.local_file(image), tmp_path / "template")

    catalogue.remove(image)

    assert (tmp_path / "template").read_bytes() == disk.read_bytes()


# What is left


def _leave(directory: Path, *names: str) -> list[Path]:
    paths = [directory / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left")
    return sorted(paths)


ID = "6c1b1f0c-3a0e-4c59-8a52-1f0f3f0c7a11"


def test_what_a_dead_process_left_is_shown_and_swept(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    image = catalogue.add(disk)
    left = _leave(
        directory, f"incoming/{ID}", f"blobs/{'a' * 128}", f"records/.{ID}.json.123.0a1b2c3d"
    )

    assert catalogue.leftovers() == left
    assert catalogue.cleanup() == left
    assert catalogue.leftovers() == []
    assert left_in(directory) == files_of(image)


def test_what_is_not_ours_is_never_swept(catalogue: Intake, directory: Path) -> None:
    foreign = _leave(
        directory,
        "incoming/notes.txt",
        "incoming/.hidden",
        f"blobs/{'A' * 128}",
        "blobs/disk.qcow2",
        "records/README",
        "other/file",
    )

    assert catalogue.leftovers() == []
    assert catalogue.cleanup() == []
    assert all(path.exists() for path in foreign)


def test_what_is_being_received_is_not_swept(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    seen: list[list[Path]] = []

    def meanwhile(_count: int) -> None:
        other = Intake(directory)
        assert len(left_in(directory)) == 1
        seen.extend((other.leftovers(), other.cleanup()))

    image = catalogue.add(disk, progress=meanwhile)

    assert seen == [[], []]
    assert left_in(directory) == files_of(image)


@pytest.mark.parametrize("name", [f"blobs/{'a' * 128}", f"incoming/{ID}"])
def test_what_somebody_has_open_is_not_swept(
    catalogue: Intake, directory: Path, name: str
) -> None:
    (left,) = _leave(directory, name)

    with left.open("rb"):
        assert catalogue.cleanup() == []
    assert catalogue.cleanup() == [left]


# At the same time


def test_many_add_the_same_content_at_once(catalogue: Intake, directory: Path, disk: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda number: catalogue.add(disk, name=f"{number}"), range(24)))

    assert len({image.id for image in images}) == 24
    assert len({image.digest for image in images}) == 1
    assert left_in(directory) == files_of(*images)


def test_of_many_that_want_one_name_one_gets_it(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    together = threading.Barrier(6)

    def add(_number: int) -> Image | None:
        def wait(_count: int) -> None:
            together.wait()

        try:
            return catalogue.add(disk, name="guest", progress=wait)
        except NameTaken:
            return None

    with ThreadPoolExecutor(6) as pool:
        added = [image for image in pool.map(add, range(6)) if image]

    assert len(added) == 1
    assert left_in(directory) == files_of(*added)


def test_adding_and_removing_the_same_content_at_once_loses_nothing(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    def come_and_go(number: int) -> None:
        for turn in range(6):
            image = catalogue.add(disk, name=f"{number}-{turn}")
            assert catalogue.local_file(image).exists()
            catalogue.remove(image)

    kept = catalogue.add(disk, name="kept")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, range(4)))

    assert catalogue.all() == [kept]
    assert left_in(directory) == files_of(kept)


def test_processes_add_at_once(catalogue: Intake, directory: Path, disk: Path) -> None:
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from millpond.images.intake import Intake
        for turn in range(5):
            Intake(Path(sys.argv[1])).add(Path(sys.argv[2]), name=f"{sys.argv[3]}-{turn}")
    """)
    words = [sys.executable, "-c", program, str(directory), str(disk)]
    running = [subprocess.Popen([*words, str(number)]) for number in range(4)]

    assert [process.wait(60) for process in running] == [0, 0, 0, 0]
    assert len(catalogue.all()) == 20
    assert left_in(directory) == files_of(*catalogue.all())


# Killed

# Adds an image, or removes it, and is killed before the nth thing that it asks of the system:
# the hook sees them all, whichever module asks.
_DYING = """
import os, signal, sys
from pathlib import Path
from millpond.images.intake import Intake

verb, directory, disk = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
deadline = int(sys.argv[4])
EVENTS = {"open", "os.rename", "os.chmod", "os.remove", "os.truncate", "os.mkdir", "fcntl.flock"}
count = 0

def hook(event, arguments):
    global count
    if event in EVENTS:
        count += 1
        if count == deadline:
            os.kill(os.getpid(), signal.SIGKILL)

catalogue = Intake(directory)
image = catalogue.find("dying")
sys.addaudithook(hook)
if verb == "add":
    catalogue.add(disk, name="dying")
else:
    catalogue.remove(image)
"""


def _die(verb: str, directory: Path, disk: Path, deadline: int) -> bool:
    """Whether it was killed before it was done."""
    words = [sys.executable, "-c", _DYING, verb, str(directory), str(disk), str(deadline)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def _deadlines() -> Iterator[int]:
    yield from range(1, 100)
    raise AssertionError("it never got to its end")


def _check(catalogue: Intake, directory: Path) -> list[Image]:
    """Every image is complete, and a sweep leaves images alone and nothing else."""
    images = catalogue.all()
    for image in images:
        assert sha512(catalogue.local_file(image).read_bytes()).hexdigest() == image.digest
    left = {str(path.relative_to(directory)) for path in catalogue.leftovers()}
    assert left_in(directory) == files_of(*images) | left
    catalogue.cleanup()
    assert left_in(directory) == files_of(*images)
    assert catalogue.all() == images
    return images


@pytest.mark.timeout(300)
@pytest.mark.parametrize("known", [False, True], ids=["new content", "known content"])
def test_an_add_that_is_killed_adds_all_or_nothing(
    catalogue: Intake, directory: Path, disk: Path, known: bool
) -> None:
    if known:
        catalogue.add(disk, name="kept")
    deaths = 0
    for deadline in _deadlines():
        if not _die("add", directory, disk, deadline):
            break
        deaths += 1
        for image in _check(catalogue, directory):
            if image.name == "dying":
                catalogue.remove(image)
    assert deaths > 10
    assert catalogue.get("dying") in _check(catalogue, directory)
    assert bool(catalogue.find("kept")) is known


@pytest.mark.timeout(300)
def test_a_removal_that_is_killed_removes_all_or_nothing(
    catalogue: Intake, directory: Path, disk: Path
) -> None:
    deaths = 0
    for deadline in _deadlines():
        if not catalogue.find("dying"):
            catalogue.add(disk, name="dying")
        if not _die("remove", directory, disk, deadline):
            break
        deaths += 1
        _check(catalogue, directory)
    assert deaths > 2
    assert _check(catalogue, directory) == []


def _ended(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """A signal that comes just before a blocking read is seen only after it: say it again."""
    for _ in range(30):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1)
    raise AssertionError("it goes on")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_add_that_is_ended_while_it_reads_can_be_repeated(
    catalogue: Intake,
    directory: Path,
    tmp_path: Path,
    disk: Path,
    number: signal.Signals,
) -> None:
    fifo = tmp_path / "fifo.raw"
    os.mkfifo(fifo)
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from millpond.images.intake import Intake
        def tell(count): print(count, flush=True)
        Intake(Path(sys.argv[1])).add(Path(sys.argv[2]), name="guest", progress=tell)
    """)
    words = [sys.executable, "-c", program, str(directory), str(fifo)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with fifo.open("wb", buffering=0) as pipe, process.stdout as told:
        pipe.write(disk.read_bytes()[: 64 * KiB])
        told.readline()
        assert catalogue.cleanup() == []
        assert _ended(process, number) != 0

    assert catalogue.all() == []
    assert len(catalogue.cleanup()) == (1 if number is signal.SIGKILL else 0)
    assert left_in(directory) == set()
    assert catalogue.add(disk, name="guest") == catalogue.get("guest")


def test_a_lock_that_was_left_is_no_obstacle(directory: Path, disk: Path) -> None:
    catalogue = Intake(directory)
    (directory / "locks").mkdir(parents=True)
    (directory / "locks" / "catalogue").touch()

    image = catalogue.add(disk)

    assert not Locks(directory / "locks").is_held("catalogue")
    assert catalogue.all() == [image]
