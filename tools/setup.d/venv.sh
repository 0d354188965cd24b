# shellcheck shell=bash
# .venv, by uv from uv.lock. uv lives in an environment of its own in the cache, and keeps its downloads there.
readonly UV_VERSION=0.13.7
readonly OLDEST_PYTHON='(3, 11)' # requires-python in pyproject.toml

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
    "$MILLPOND_CACHE/uv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "uv==$UV_VERSION"
}

# What the environment is made from. As long as this is the same, there is nothing to do.
venv_recipe() {
    "$1" --version
    cd "$REPOSITORY" && sha256sum uv.lock pyproject.toml
}

ensure_uv() {
    if [[ $("$MILLPOND_CACHE/uv/bin/uv" --version 2>/dev/null) != "uv $UV_VERSION "* ]]; then
        change "install uv $UV_VERSION into $MILLPOND_CACHE/uv" install_uv "$1"
    fi
}

run_uv() {
    # The system's certificates rather than uv's own, and never a Python from elsewhere.
    env -u VIRTUAL_ENV UV_SYSTEM_CERTS=true UV_PYTHON_DOWNLOADS=never \
        UV_CACHE_DIR="${UV_CACHE_DIR:-$MILLPOND_CACHE/uv-cache}" UV_PROJECT_ENVIRONMENT="$REPOSITORY/.venv" \
        "$MILLPOND_CACHE/uv/bin/uv" "$@"
}

sync_venv() {
    run_uv sync --quiet --frozen --project "$REPOSITORY" --python "$1"
}

stage_venv() {
    local python recipe stamp=$REPOSITORY/.venv/.millpond-recipe
    python=$(find_python)
    if [[ -z $python ]]; then
        $DRY_RUN || fail "Python 3.11 or newer is missing: run tools/setup packages."
        say "will install uv and the Python packages of uv.lock, once there is Python"
        return
    fi
    recipe=$(venv_recipe "$python")
    if [[ -x $REPOSITORY/.venv/bin/python && $(cat "$stamp" 2>/dev/null) == "$recipe" ]]; then return; fi
    ensure_uv "$python"
    change "install the Python packages of uv.lock into .venv (downloads are kept in $MILLPOND_CACHE/uv-cache)" \
        sync_venv "$python"
    $DRY_RUN || printf '%s\n' "$recipe" >"$stamp"
}
