"""Millpond inside nova-compute: a composition root, and the only importer of nova."""
