# Two commands: `make demo` shows Millpond at work, `make test` tests it. Both prepare the machine first (tools/setup),
# and say what they change on it.

PYTHON := .venv/bin/python
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTEST_ARGS ?=
TEMPEST_ARGS ?=
TEMPEST_RESULTS ?= docs/results/tempest-$(shell date +%F).md
NOVA_RESULTS ?= docs/results/nova-$(shell date +%F).md
WITH_NOVA = $$($(PYTHON) -c 'from tests.support.openstack.environment import python; print(python().parents[1])')
TEST_LVM := .venv/bin/python -m pytest --timeout=600 --durations=10 tests/lvm

# libvirt's system connection and the state directory are root's. HOME stays: the guests are in the user's cache.
ifneq ($(shell id -u),0)
AS_ROOT := sudo env HOME="$(HOME)" PYTHONDONTWRITEBYTECODE=1 \
    $(if $(MILLPOND_STATE),MILLPOND_STATE="$(MILLPOND_STATE)") \
    $(if $(MILLPOND_CACHE),MILLPOND_CACHE="$(MILLPOND_CACHE)")
endif

.NOTPARALLEL: # the machine is prepared before anything else
.PHONY: help demo demo-clean test test-lvm test-ceph test-services test-nova test-tempest test-fresh test-chaos test-full bench-cache bench-scheduler bench-moves bench-transition bench-coldstart check guests docs install uninstall wheel setup venv lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup guests ## prepare this machine, then boot qcow2, raw and vmdk images
	$(AS_ROOT) $(PYTHON) tools/demo

demo-clean: venv ## remove the servers and images of the demo
	$(AS_ROOT) $(PYTHON) tools/demo --clean

test: setup guests ## prepare this machine, then run the tests of every change
	@tools/setup ceph-packages openstack-packages nested-packages
	$(AS_ROOT) $(PYTHON) -m pytest --durations=10 $(PYTEST_ARGS)
	$(AS_ROOT) tools/nested/run --seconds 2400 $(TEST_LVM)

test-lvm: setup guests ## LVM, in a nested machine with a kernel of its own
	@tools/setup openstack-packages nested-packages
	$(AS_ROOT) tools/nested/run --seconds 5400 --with "$(WITH_NOVA)" env MILLPOND_TEST_FULL=1 $(TEST_LVM) $(PYTEST_ARGS)

test-ceph: setup guests ## RBD, on a Ceph cluster of its own
	@tools/setup ceph-packages
	$(AS_ROOT) env MILLPOND_TEST_FULL=1 $(PYTHON) -m pytest --durations=10 tests/ceph $(PYTEST_ARGS)

test-services: setup guests ## Glance, Cinder, Barbican and an iSCSI target, the real ones
	@tools/setup ceph-packages openstack-packages
	$(AS_ROOT) env MILLPOND_TEST_FULL=1 $(PYTHON) -m pytest --durations=10 tests/services $(PYTEST_ARGS)

test-nova: setup guests ## the driver for Nova, on a small cloud with everything
	@tools/setup ceph-packages openstack-packages nova-releases
	$(AS_ROOT) env MILLPOND_TEST_FULL=1 $(if $(PYTEST_ARGS),,MILLPOND_TEST_RESULTS=$(NOVA_RESULTS)) \
	    $(PYTHON) -m pytest --durations=10 tests/nova $(PYTEST_ARGS)

test-tempest: setup ## OpenStack's own tests, with our driver and with Nova's, into docs/results; TEMPEST_ARGS=--short: a few
	@tools/setup ceph-packages openstack-packages tempest-packages
	$(AS_ROOT) $(PYTHON) -m tests.tempest $(if $(TEMPEST_ARGS),,--page $(TEMPEST_RESULTS)) $(TEMPEST_ARGS)

test-fresh: ## make demo in a minimal Debian that has nothing of ours (FRESH=trixie: another release)
	@tools/setup nested-packages
	$(AS_ROOT) tools/fresh/run $(if $(FRESH),--release $(FRESH))

test-chaos: setup ## kills at random for SECONDS=600 or KILLS=2000; SEED=… chooses the same again
	$(AS_ROOT) $(PYTHON) -m tests.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(KILLS),--kills $(KILLS)) \
	    $(if $(SEED),--seed $(SEED))

test-full: setup guests ## everything, in parts of at most an hour; PART=… runs one: unit real-1 real-2 moves-1 moves-2 cloud ceph services nova tempest lvm-1 lvm-2 chaos fresh
	@tools/setup ceph-packages openstack-packages nova-releases tempest-packages nested-packages
	$(AS_ROOT) $(PYTHON) -m tests.full $(PART)

bench-cache: setup guests ## what a run of the cache manager costs, into docs/results/image-cache.md
	$(AS_ROOT) $(PYTHON) -m tests.bench.cache | tee docs/results/image-cache.new
	mv docs/results/image-cache.new docs/results/image-cache.md

bench-scheduler: setup ## what a decision of the scheduler costs, into docs/results/scheduler.md
	@tools/setup openstack-packages
	$(AS_ROOT) $(PYTHON) -m tests.bench.scheduler docs/results/scheduler.svg | tee docs/results/scheduler.new
	mv docs/results/scheduler.new docs/results/scheduler.md

bench-moves: setup ## what it takes to move a server, into docs/results/moves.md
	$(AS_ROOT) $(PYTHON) -m tests.bench.moves | tee docs/results/moves.new
	mv docs/results/moves.new docs/results/moves.md

bench-coldstart: setup guests ## download against streaming until the guest speaks, into docs/results/coldstart.md; MIB="64 8192": these sizes
	$(AS_ROOT) $(PYTHON) -m tests.bench.coldstart docs/results/coldstart.svg $(MIB) | tee docs/results/coldstart.new
	mv docs/results/coldstart.new docs/results/coldstart.md

bench-transition: setup ## what it takes to move disks out of Nova's layout, into docs/results/transition.md
	$(AS_ROOT) $(PYTHON) -m tests.bench.transition | tee docs/results/transition.new
	mv docs/results/transition.new docs/results/transition.md

check: venv ## linters, types, architecture, unit and contract tests: quick
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports
	$(PYTHON) -m pytest -q tests/unit tests/contract $(PYTEST_ARGS)

guests: ## build the two guests into the cache
	@tools/guests/build

PREFIX ?= /usr/local
install: ## the command for use, with man page and a timer for the cache, into PREFIX=/usr/local
	@$(if $(filter /usr/local,$(PREFIX)),$(AS_ROOT)) tools/install --prefix "$(PREFIX)"

uninstall: ## what make install has installed
	@$(if $(filter /usr/local,$(PREFIX)),$(AS_ROOT)) tools/install --prefix "$(PREFIX)" --remove

wheel: venv ## a wheel for pip, pipx or uv tool install, in dist/
	$(PYTHON) -m hatchling build -t wheel

docs: venv ## the documentation as HTML, in docs/_build/html
	.venv/bin/sphinx-build -W -b html docs docs/_build/html

setup: ## prepare this machine (tools/setup --dry-run only shows how)
	@tools/setup

venv:
	@tools/setup venv

lock: ## write requirements/ from pyproject.toml (tools/lock --upgrade takes newer versions)
	@tools/lock

# The tests run as root, so some of these may be root's.
CLEAN := .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist docs/_build
clean: ## remove what was made in this directory, and nothing else
	@rm -rf $(CLEAN) 2>/dev/null || $(AS_ROOT) rm -rf $(CLEAN)
	@find . -name .git -prune -o -name __pycache__ -type d -print0 | xargs -0 --no-run-if-empty $(AS_ROOT) rm -rf
