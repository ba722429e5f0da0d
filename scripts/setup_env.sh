#!/usr/bin/env bash
# Usage: setup_env.sh [EXTRA]    Makes .venv and installs the project there, with an extra such as dev.
# Does nothing where that is done already. PYTHON and CXX choose the interpreter and the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TORCH="torch==2.13.0"
extra="${1:-}"
stamp=".venv/installed-${extra:-base}"

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 2
}

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python}; do
        if is_recent "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.10 or newer is needed; found: $("${PYTHON:-python3}" --version 2>/dev/null || echo none)" \
        "install one (Debian, Ubuntu: apt install python3 python3-venv python3-dev)," \
        "or name it: PYTHON=/path/to/python3 bash $0"
}

find_compiler() {
    local candidate program
    program='#include <vector>
        int main() { return static_cast<int>(std::vector<int>{}.size()); }'
    for candidate in ${CXX:-c++ g++ clang++}; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -std=c++17 -fopenmp -x c++ - -o /dev/null <<<"$program" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "no C++17 compiler with OpenMP; tried: ${CXX:-c++ g++ clang++}" \
        "install one (Debian, Ubuntu: apt install g++; clang also needs libomp-dev)," \
        "or name it: CXX=/path/to/g++ bash $0"
}

check_python() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$1 has no venv module" "install it (Debian, Ubuntu: apt install python3-venv)"
    "$1" - <<'PYTHON' || fail "$1 has no C headers (Python.h)" \
        "install them (Debian, Ubuntu: apt install python3-dev)"
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
PYTHON
}

# What the installation depends on; written beside it when it is complete.
fingerprint() {
    cat pyproject.toml setup.py scripts/setup_env.sh
    echo "$PWD ${GRENDEL_ODIN_PORTABLE:-0}"
}

is_installed() {
    local library=(grendel_odin/_kernels.*.so)
    fingerprint | cmp -s - "$stamp" || fingerprint | cmp -s - .venv/installed-dev || return 1
    [ -e "${library[0]}" ] && .venv/bin/python -c '' 2>/dev/null &&
        [ -z "$(find csrc -type f -newer "${library[0]}" -print -quit)" ]
}

install() {
    local python
    python="$(find_python)"
    CXX="$(find_compiler)"
    export CXX
    check_python "$python"
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || ! is_recent .venv/bin/python; then
        echo "Making .venv with $("$python" --version)"
        rm -rf .venv
        "$python" -m venv .venv
    fi
    rm -f "$stamp"
    echo "Installing; the first time this takes a few minutes"
    local pip=(.venv/bin/python -m pip --disable-pip-version-check -q install)
    "${pip[@]}" "$TORCH"
    "${pip[@]}" -e ".${extra:+[$extra]}"
    fingerprint >"$stamp"
}

is_installed || install
