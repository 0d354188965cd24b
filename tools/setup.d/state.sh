# shellcheck shell=bash
# The state directory. QEMU's user must be able to walk through it to the disks, and has no business reading its list
# of files: mode 0711.
readonly WALKABLE=0711

stage_state() {
    local directory
    check_parents
    for directory in "$MILLPOND_STATE" "$MILLPOND_STATE/instances"; do
        if [[ ! -d $directory ]]; then
            change "make the directory $directory (mode $WALKABLE)" \
                run_as_root install -d -m "$WALKABLE" "$directory"
        elif ! is_walkable "$directory"; then
            change "let every user walk through $directory (chmod o+x)" run_as_root chmod o+x "$directory"
        fi
    done
    if [[ ! -d $MILLPOND_CACHE ]]; then
        change "make the directory $MILLPOND_CACHE" mkdir -p "$MILLPOND_CACHE"
    fi
}

is_walkable() {
    # the last digit of the mode is for "others", its lowest bit says "may walk through"
    (($(stat -c %a "$1") % 10 & 1))
}

# The directories above are not ours to change.
check_parents() {
    local directory
    directory=$(dirname "$MILLPOND_STATE")
    while [[ $directory != / ]]; do
        if [[ -d $directory ]] && ! is_walkable "$directory"; then
            fail "QEMU's user cannot walk through $directory: choose another MILLPOND_STATE, or chmod o+x $directory."
        fi
        directory=$(dirname "$directory")
    done
}
