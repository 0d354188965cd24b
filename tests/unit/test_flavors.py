"""Sizes by the name of a flavour, and what they can become."""

import pytest

from millpond.errors import BadOption
from millpond.model.flavors import choose_flavor, with_maximum
from millpond.model.server import Flavor
from millpond.model.sizes import GiB

LARGE = Flavor(name="large", vcpus=4, memory=8 * GiB, disk=20 * GiB)


def test_what_is_said_besides_a_flavour_holds():
    found = choose_flavor({"large": LARGE}, "large", 2, {"memory": "4G", "disk": ""})
    assert (found.vcpus, found.memory, found.disk) == (2, 4 * GiB, 20 * GiB)
    with pytest.raises(BadOption, match="no flavour 'huge'"):
        choose_flavor({"large": LARGE}, "huge", None, {})


def test_a_maximum_is_never_less_than_what_there_is():
    roomy = with_maximum(LARGE, 8, "16G")
    assert (roomy.most_vcpus, roomy.most_memory) == (8, 16 * GiB)
    assert with_maximum(roomy, None, "") == roomy
    plain = with_maximum(roomy, 0, "0")
    assert (plain.most_vcpus, plain.most_memory) == (4, 8 * GiB)
    for vcpus, memory in ((3, ""), (None, "7G")):
        with pytest.raises(BadOption, match="less than the"):
            with_maximum(LARGE, vcpus, memory)
