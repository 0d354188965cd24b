"""Sphinx: the pages of this folder as they are."""

project = "Millpond"
author = "the Millpond authors"
copyright = author
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "results"]
html_theme = "alabaster"
myst_heading_anchors = 3
man_pages = [("commands", "millpond", "disks of virtual machines on libvirt", [author], 1)]
