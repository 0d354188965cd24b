"""Where the guest of a live migration is that nobody has watched to its end."""

import pytest

from millpond.libvirt.migration import Place, has_moved


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (Place.GONE, Place.RUNS),
        (Place.GONE, Place.OFF),
        (Place.OFF, Place.RUNS),  # the source lost its power before it had undefined the domain
        (Place.OFF, Place.WAITING),
        (Place.WAITING, Place.RUNS),
        (Place.LEFT, Place.RUNS),
    ],
)
def test_it_has_moved(here, there):
    assert has_moved(here, there)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (Place.RUNS, Place.GONE),
        (Place.RUNS, Place.ARRIVING),
        (Place.WAITING, Place.ARRIVING),
        (Place.OFF, Place.GONE),
        (Place.OFF, Place.ARRIVING),
        (Place.GONE, Place.GONE),  # nothing says that the other host ever had it
    ],
)
def test_it_has_not_moved(here, there):
    assert not has_moved(here, there)
