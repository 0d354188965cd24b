"""Several servers by one command."""

import pytest

ROOM = ("--image", "guest", "--memory", "32M")


@pytest.fixture
def pond(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    return millpond


def names(millpond):
    return sorted(each["name"] for each in millpond.json("server", "list"))


def test_servers_are_created_alike_and_boot(pond):
    made = pond.json("server", "create", "web", *ROOM, "--count", "6", "--label", "tier=web")
    assert [each["name"] for each in made] == [f"web-{number}" for number in range(1, 7)]
    assert {each["state"] for each in made} == {"running"}
    assert len({each["id"] for each in made}) == 6
    assert len({each["networks"][0]["mac"] for each in made}) == 6
    for each in made:
        assert each["labels"] == {"tier": "web"}
        pond.wait_for_console(each["id"], "BOOTS 0001")
    alone = pond.json("server", "create", "db", *ROOM, "--count", "1", "--no-start")
    assert [each["name"] for each in alone] == ["db-1"]
    assert "no problem" in pond.ok("doctor")


def test_one_that_fails_is_named_and_the_others_stay(pond, connection):
    domain = "<domain type='qemu'><name>web-3</name><memory>1024</memory><os><type>hvm</type></os>"
    foreign = connection.defineXML(f"{domain}</domain>")
    done = pond.run("server", "create", "web", *ROOM, "--count", "5", "--no-start")
    assert done.returncode == 4
    assert "web-3 was not created:\nmillpond: there is already a domain" in done.stderr
    assert names(pond) == ["web-1", "web-2", "web-4", "web-5"]
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Name")] == [
        "web-1",
        "web-2",
        "web-4",
        "web-5",
    ]
    foreign.undefine()
    assert "no problem" in pond.ok("doctor")


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (4, "there is already a server named 'web-3'", ("--count", "3")),
        (2, "not in the range", ("--count", "0")),
        (2, "is not a valid int", ("--count", "many")),
        (2, "--dry-run is for one server", ("--count", "2", "--dry-run")),
        (2, "cannot share a host name", ("--count", "2", "--hostname", "web")),
        (2, "a published port", ("--count", "2", "--publish", "2222:22")),
        (2, "cannot share a MAC", ("--count", "2", "--network", "default,mac=52:54:00:00:00:01")),
        (2, "cannot be the name", ("--count", "2", "--name-too-long")),
        (2, "are too many", ("--count", "2", "--vcpus", "1000")),
        (3, "no image", ("--count", "2", "--image", "nosuch")),
    ],
)
def test_what_cannot_be_is_said_once_and_nothing_is_made(pond, status, said, words):
    pond.ok("server", "create", "web-3", *ROOM, "--no-start")
    name = "w" * 199 if "--name-too-long" in words else "web"
    told = [word for word in words if word != "--name-too-long"]
    code, message = pond.fails("server", "create", name, *ROOM, *told)
    assert (code, message.count(said)) == (status, 1), message
    assert names(pond) == ["web-3"]
