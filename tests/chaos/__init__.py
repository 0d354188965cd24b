"""Random kills of random operations, and a look at every byte after each recovery.

``make test-chaos SECONDS=600``, or ``KILLS=2000``, ``SEED=…``; ``python -m tests.chaos --help``.
"""
