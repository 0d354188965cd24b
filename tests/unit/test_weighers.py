"""Which host is best: pure, and the same for the same facts."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.scheduling.weigh import HostWeights, Multipliers, weigh


def weights(**changes):
    values = {"native": True, "cached": False, "disk": 100, "memory": 1000}
    return HostWeights(**(values | changes))


def order(hosts, **multipliers):
    return list(weigh(hosts, Multipliers(**multipliers)))


def test_native_before_conversion_whatever_else_there_is():
    hosts = {
        "converts": weights(native=False, cached=True, disk=10**6, memory=10**6),
        "native": weights(disk=1, memory=1),
    }
    assert order(hosts) == ["native", "converts"]


def test_a_template_that_is_there_before_free_space():
    hosts = {"far": weights(disk=10**6, memory=10**6), "near": weights(cached=True)}
    assert order(hosts) == ["near", "far"]


def test_free_disk_and_free_memory_count():
    assert order({"a": weights(), "b": weights(disk=101)}) == ["b", "a"]
    assert order({"a": weights(), "b": weights(memory=1001)}) == ["b", "a"]


def test_a_multiplier_of_nothing_switches_a_weigher_off_and_a_negative_one_turns_it_round():
    hosts = {"a": weights(native=False), "b": weights(disk=99)}
    assert order(hosts) == ["b", "a"]
    assert order(hosts, native=0) == ["a", "b"]
    assert order(hosts, native=0, disk=-1) == ["b", "a"]
    scores = weigh(hosts, Multipliers(native=0, cached=0, disk=0, memory=0))
    assert [(each.total, dict(each.parts)) for each in scores.values()] == [(0, {}), (0, {})]


def test_the_parts_of_a_score_are_shown():
    hosts = {"a": weights(native=False, memory=500), "b": weights(disk=50)}
    scores = weigh(hosts, Multipliers(native=10, cached=3, disk=1, memory=2))
    assert scores["b"].parts == {"native": 10, "cached": 0, "disk": 0, "memory": 2}
    assert scores["a"].parts == {"native": 0, "cached": 0, "disk": 1, "memory": 0}
    assert (scores["b"].total, scores["a"].total) == (12, 1)


def test_nobody_is_an_empty_list():
    assert order({}) == []


STANDINGS = st.builds(
    HostWeights,
    native=st.booleans(),
    cached=st.booleans(),
    disk=st.integers(0, 10**6),
    memory=st.integers(0, 10**6),
)


@given(st.dictionaries(st.text(min_size=1), STANDINGS, max_size=20), st.randoms())
def test_the_order_does_not_depend_on_who_was_asked_first(hosts, random):
    names = list(hosts)
    random.shuffle(names)
    assert order(hosts) == order({name: hosts[name] for name in names})


@given(STANDINGS, st.lists(st.text(min_size=1), unique=True))
def test_equals_come_by_name(same, names):
    assert order(dict.fromkeys(names, same)) == sorted(names)
