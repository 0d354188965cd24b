# shellcheck shell=bash
# libvirt before 9.9 does not tell AppArmor which file a <disk type='volume'> is, so QEMU's profile must name
# the directories of the pools itself. The profile of a domain is compiled when the domain starts: nothing to reload.
readonly APPARMOR=/etc/apparmor.d
readonly APPARMOR_RULES=$APPARMOR/local/abstractions/libvirt-qemu # included by libvirt's abstractions/libvirt-qemu

# Letters of the paths that mean something in a rule. A quote would end the path, the others are wildcards.
has_wildcards() {
    [[ $1 == *[\"\*\?\[\]\{\}^@\\]* ]]
}

# r read, w write, k lock: QEMU locks the bases, too, and writes to the sockets of templates that arrive.
apparmor_rules() {
    cat <<RULES
# The files of Millpond's storage pools, by tools/setup.
"$MILLPOND_STATE/instances/_base/**" rk,
"$MILLPOND_STATE/instances/disks/**" rwk,
"/run/millpond/**" rw,
RULES
}

# Compiles a profile that includes the file $1, and loads it nowhere (-Q) nor keeps it (-K).
compiles() {
    printf 'include <tunables/global>\nprofile millpond-check {\n include "%s"\n}\n' "$1" |
        apparmor_parser -Q -K 2>&1
}

apparmor_is_on() {
    # the kernel's own word: Y or N, and no such file in a kernel without it
    [[ $(cat /sys/module/apparmor/parameters/enabled 2>/dev/null) == Y ]]
}

install_rules() {
    run_as_root install -D -m 0644 "$1" "$APPARMOR_RULES"
}

stage_apparmor() {
    local new errors
    if has_wildcards "$MILLPOND_STATE"; then
        fail "AppArmor would misread the path $MILLPOND_STATE: choose another MILLPOND_STATE."
    fi
    if ! have apparmor_parser || [[ ! -e $APPARMOR/tunables/global ]]; then
        say "AppArmor is not here: its rule for the pools was neither checked nor installed."
        return
    fi
    new=$(mktemp)
    apparmor_rules | with_our_block "$APPARMOR_RULES" >"$new"
    if ! errors=$(compiles "$new"); then
        rm -f "$new"
        fail "$APPARMOR_RULES with the rule for the pools does not compile, so it was left as it is: $errors"
    fi
    if ! apparmor_is_on; then
        say "AppArmor is off in this kernel: its rule for the pools compiles and was not installed."
    elif ! cmp -s "$new" "$APPARMOR_RULES"; then
        change "let QEMU open the files in $MILLPOND_STATE/instances/{_base,disks}, in $APPARMOR_RULES" \
            install_rules "$new"
    fi
    rm -f "$new"
}
