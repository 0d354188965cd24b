"""Suites that every implementation of a protocol passes."""

import pytest

pytest.register_assert_rewrite("tests.contract.pool")
