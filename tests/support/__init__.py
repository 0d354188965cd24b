"""What the tests stand on: private libvirtds, loop file systems, a directory for both."""
