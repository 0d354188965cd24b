# shellcheck shell=bash
# What several stages use. tools/setup sources it before any of them.
readonly OUR_BLOCK='/^# BEGIN millpond$/,/^# END millpond$/' # in files that others write, too
readonly OLDEST_PYTHON='(3, 11)' # requires-python in pyproject.toml

say() {
    printf 'setup: %s\n' "$*"
}

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null
}

# change "do this" COMMAND…: the one way to change something outside the repository.
change() {
    say "will $1"
    shift
    if ! $DRY_RUN; then "$@"; fi
}

run_as_root() {
    if [[ $EUID -eq 0 ]]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        fail "this machine needs changes that only root can make: run this as root, or install sudo."
    fi
}

# Prints the file $1 with the lines of standard input as our block in it; other lines stay as they are.
with_our_block() {
    local file=$1
    if [[ -r $file ]]; then
        sed "$OUR_BLOCK d" "$file"
    elif run_as_root test -e "$file"; then
        run_as_root sed "$OUR_BLOCK d" "$file"
    fi
    printf '# BEGIN millpond\n%s\n# END millpond\n' "$(cat)"
}

# Debian packages

# Of a list with one package per line: its name, or NEWER|OLDER of one that was renamed between releases of Debian, and
# then what the stage writes next to it.
package_names() {
    awk 'NF { print $1 }' <<<"$1"
}

missing_packages() {
    # shellcheck disable=SC2016 # dpkg-query's own placeholders
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' | awk -v list="$(package_names "$1")" '
        $1 == "installed" { installed[$2] }
        END {
            count = split(list, names)
            for (i = 1; i <= count; i++) {
                split(names[i], name, "|")
                if (!(name[1] in installed || name[2] in installed)) print names[i]
            }
        }' | sort
}

# Of NEWER|OLDER the one that this release has.
known_name() {
    if [[ $1 != *'|'* ]]; then
        printf '%s\n' "$1"
    elif apt-cache show "${1%|*}" >/dev/null 2>&1; then # it complains of what it does not know
        printf '%s\n' "${1%|*}"
    else
        printf '%s\n' "${1#*|}"
    fi
}

apt_get() {
    # Another apt may be at work, on a machine that has just been started: wait for it as long as it may well take.
    run_as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

install_packages() {
    local log package names=()
    apt_get update
    for package in "$@"; do names+=("$(known_name "$package")"); done
    # Its hundred lines matter only when it fails.
    log=$(mktemp)
    if ! apt_get install -y --no-install-recommends "${names[@]}" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "apt-get install failed; above is what it said."
    fi
    rm -f "$log"
}

# install_missing_packages LIST [PURPOSE]
install_missing_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$1")
    if [[ ${#missing[@]} -gt 0 ]]; then
        change "refresh the package lists and install packages${2:+ $2}: ${missing[*]}" \
            install_packages "${missing[@]}"
    fi
}

# Runs a command that reads the package lists. They may be missing, or name a version that the mirror has replaced
# since, so after a failure they are refreshed, once.
with_package_lists() {
    local errors
    errors=$(mktemp)
    if "$@" 2>"$errors"; then
        rm -f "$errors"
        return
    fi
    change "refresh the package lists, as apt failed with them: $(paste -sd ' ' "$errors")" apt_get update >&2
    rm -f "$errors"
    "$@"
}

# download_packages DIRECTORY PACKAGE…
download_packages() {
    # apt drops root's rights for downloads, and the directory is not for others: say that root may do it.
    (cd "$1" && shift && apt-get -qq -o APT::Sandbox::User=root download "$@")
}

# unpack_packages TARGET PACKAGE…: makes the directory TARGET of them, installs nothing. What they were is in
# TARGET.versions.
unpack_packages() {
    local target=$1 new deb
    shift
    mkdir -p "$(dirname "$target")"
    rm -rf "$target".?????? # left by a run that was interrupted
    new=$(mktemp -d "$target.XXXXXX")
    with_package_lists download_packages "$new" "$@"
    for deb in "$new"/*.deb; do
        dpkg-deb -x "$deb" "$new/root"
        basename "$deb" .deb
    done >"$new/versions"
    rm -rf "$target"
    mv "$new/root" "$target"
    mv "$new/versions" "$target.versions"
    rm -rf "$new"
}

# uv and Python

# Debian's own Python first: python3-dev has the headers for that one. Prints nothing if there is none.
find_python() {
    local python
    for python in /usr/bin/python3 python3; do
        if have "$python" && "$python" -c "import sys; sys.exit(sys.version_info < $OLDEST_PYTHON)"; then
            command -v "$python"
            return
        fi
    done
}

install_uv() {
    "$1" -m venv --clear "$MILLPOND_CACHE/uv"
    "$MILLPOND_CACHE/uv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
        --require-hashes --requirement "$REPOSITORY/requirements/uv.txt"
}

ensure_uv() {
    local version
    version=$(sed -n 's/^uv==\([^ ]*\).*/\1/p' "$REPOSITORY/requirements/uv.txt")
    if [[ $("$MILLPOND_CACHE/uv/bin/uv" --version 2>/dev/null) != "uv $version "* ]]; then
        change "install uv $version into $MILLPOND_CACHE/uv" install_uv "$1"
    fi
}

# The index that pip is told to use, for uv, which does not read pip's settings; empty if uv has settings of its own.
pip_index() {
    if [[ -z ${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-}} && ! -e /etc/uv/uv.toml && ! -e ~/.config/uv/uv.toml ]]; then
        "$MILLPOND_CACHE/uv/bin/python" -m pip config list |
            sed -n "s/^\(global\|install\|:env:\)\.index-url='\(.*\)'$/UV_DEFAULT_INDEX=\2/p" | tail -n 1
    fi
}

run_uv() {
    local index
    index=$(pip_index)
    # The system's certificates rather than uv's own, and never a Python from elsewhere.
    env -u VIRTUAL_ENV ${index:+"$index"} UV_SYSTEM_CERTS=true UV_PYTHON_DOWNLOADS=never \
        UV_CACHE_DIR="${UV_CACHE_DIR:-$MILLPOND_CACHE/uv-cache}" "$MILLPOND_CACHE/uv/bin/uv" "$@"
}

# install_locked PYTHON LOCK [OPTION…]: makes the environment of that Python what the lock says, and nothing else.
install_locked() {
    run_uv pip sync --quiet --python "$1" --require-hashes --require-build-hashes \
        --build-constraints "$REPOSITORY/requirements/build.txt" "${@:2}"
}

readonly ENVIRONMENT_KEPT_DAYS=14 # without use; after that the next one removes it

# ensure_openstack_environment WHAT LOCK: an environment of its own in the cache, named by the checksum of the lock.
ensure_openstack_environment() {
    local what=$1 lock=$2 python environment
    python=$(find_python)
    [[ -n $python ]] || fail "Python 3.11 or newer is missing: run tools/setup packages."
    environment=$MILLPOND_CACHE/openstack/$(sha256sum "$REPOSITORY/$lock" | cut -c -16)
    if [[ ! -e $environment/complete ]]; then
        ensure_uv "$python"
        change "install $what of $lock into $environment" make_openstack_environment "$environment" "$python" "$lock"
    elif ! $DRY_RUN; then
        touch "$environment/complete"
    fi
}

# It sees Debian's own modules, of which Ceph's are not in the registry; for uv they are not there, so it installs all
# others.
make_openstack_environment() {
    local environment=$1 python=$2 lock
    mkdir -p "$(dirname "$environment")"
    exec {lock}>"$environment.lock"
    flock "$lock" # somebody else may be making it
    if [[ ! -e $environment/complete ]]; then
        run_uv venv --quiet --clear --system-site-packages --python "$python" "$environment"
        install_locked "$environment/bin/python" "$REPOSITORY/$3" --compile-bytecode
        touch "$environment/complete"
    fi
    exec {lock}>&-
    find "$(dirname "$environment")" -mindepth 2 -maxdepth 2 -name complete -mtime "+$ENVIRONMENT_KEPT_DAYS" \
        -printf '%h\0%h.lock\0' | xargs -0 --no-run-if-empty rm -rf
}

# Debian and its children call the user libvirt-qemu, others qemu.
qemu_user() {
    local user
    for user in libvirt-qemu qemu; do
        if getent passwd "$user" >/dev/null; then
            printf '%s\n' "$user"
            return
        fi
    done
}
