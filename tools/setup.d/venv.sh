# shellcheck shell=bash
# .venv, by uv from uv.lock. uv lives in an environment of its own in the cache, and keeps its downloads there.

# What the environment is made from. As long as this is the same, there is nothing to do.
venv_recipe() {
    "$1" --version
    cd "$REPOSITORY" && sha256sum uv.lock pyproject.toml
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
