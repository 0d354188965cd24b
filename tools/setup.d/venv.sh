# shellcheck shell=bash
# .venv, by uv from requirements/dev.txt. uv lives in an environment of its own in the cache, and keeps its downloads there.

# What the environment is made from. As long as this is the same, there is nothing to do.
venv_recipe() {
    "$1" --version
    cd "$REPOSITORY" && pwd && sha256sum requirements/*.txt pyproject.toml
}

make_venv() {
    local python=$REPOSITORY/.venv/bin/python
    run_uv venv --quiet --clear --no-project --python "$1" "$REPOSITORY/.venv"
    install_locked "$python" "$REPOSITORY/requirements/dev.txt"
    # Built by the hatchling that was just installed: no isolation, which would fetch another one.
    run_uv pip install --quiet --python "$python" --no-deps --no-build-isolation --editable "$REPOSITORY"
}

stage_venv() {
    local python recipe stamp=$REPOSITORY/.venv/.millpond-recipe
    python=$(find_python)
    if [[ -z $python ]]; then
        $DRY_RUN || fail "Python 3.11 or newer is missing: run tools/setup packages."
        say "will install uv and the Python packages of requirements/dev.txt, once there is Python"
        return
    fi
    recipe=$(venv_recipe "$python")
    if [[ -x $REPOSITORY/.venv/bin/python && $(cat "$stamp" 2>/dev/null) == "$recipe" ]]; then return; fi
    ensure_uv "$python"
    change "install the Python packages of requirements/dev.txt into .venv (downloads are kept in $MILLPOND_CACHE/uv-cache)" \
        make_venv "$python"
    $DRY_RUN || printf '%s\n' "$recipe" >"$stamp"
}
