"""Real services of OpenStack and what they stand on, each started by the tests that ask for it."""
