# shellcheck shell=bash
# Tempest, in an environment of its own: who does not run it does not install it.
stage_tempest_packages() {
    ensure_environment tools/tempest/requirements.txt
}
