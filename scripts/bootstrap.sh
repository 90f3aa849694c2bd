# shellcheck shell=sh
# Makes the private environment: an interpreter of Python 3.11 or newer, the packages of share/lock, and a line that
# names src/.  Another script reads this one, and then calls
#
#     prepare CHECKOUT [EXTRA]      sets `venv`; EXTRA is a group of [project.optional-dependencies]
#
# Rules
#   * The script needs no root, and writes only into the checkout; where the checkout is read-only, into a directory of
#     the user's cache.
#   * The script writes the stamp last: an environment without a stamp that fits counts as unfinished.
#   * One process at a time: the lock is a symbolic link that names its owner, so that others recognise the lock of a
#     process that was killed.
#   * A set-up that works prints one line.  One that fails shows the last lines of its log, and what to do.
#   * The packages are those of share/lock (scripts/lock writes it): exact versions, wheels alone, checked by their hashes.
#     Where the lock has no wheel for this machine the script says so, and takes the newest that fit pyproject.toml.
#
# `ways` lists the ways to install the packages, in the order in which the script tries them.

say() { printf 'windfall: %s\n' "$*" >&2; }

prepare() {
    here=$1 extra=${2-}
    stamp_name=stamp${extra:+-$extra}
    lock_file=$here/share/lock/${extra:-windfall}.txt
    venv=$here/.venv
    writable "$here" || venv=$(cache_place "$here") || return 1
    fits && return 0
    lock=$venv.lock
    work=$venv.work.$$
    take_lock || return 1
    trap 'give_back' EXIT
    trap 'give_back; exit 130' INT
    trap 'give_back; exit 143' TERM HUP
    status=0
    fits || set_up || status=1
    give_back
    trap - EXIT INT TERM HUP
    return $status
}

# --- where ---------------------------------------------------------------------------------------------------

# Tries it, because permission bits say nothing about a file system that is mounted read-only.
writable() {
    probe=$1/.venv.probe.$$
    mkdir "$probe" 2>/dev/null && rmdir "$probe"
}

cache_place() {
    cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/windfall
    if ! mkdir -p "$cache" 2>/dev/null || ! writable "$cache"; then
        say "neither $1 nor $cache can be written to; set XDG_CACHE_HOME to a directory that can"
        return 1
    fi
    key=$(printf '%s' "$1" | cksum)
    printf '%s\n' "$cache/venv-${key%% *}"
}

# --- is it finished? -----------------------------------------------------------------------------------------

fits() {
    [ -x "$venv/bin/python" ] && [ -f "$venv/$stamp_name" ] || return 1
    { read -r at; read -r made_with; read -r sum; } <"$venv/$stamp_name"
    [ "$at" = "$here" ] && [ "${WINDFALL_PYTHON:-$made_with}" = "$made_with" ] || return 1
    newer_than "$here/pyproject.toml" && newer_than "$lock_file" && return 0
    [ "$sum" = "$(sum_of_needs)" ] || return 1
    touch "$venv/$stamp_name" # same content, newer file: remember that
}

newer_than() { [ ! -f "$1" ] || [ "$venv/$stamp_name" -nt "$1" ]; }

sum_of_needs() {
    { cat "$here/pyproject.toml" && [ ! -f "$lock_file" ] || cat "$lock_file"; } | cksum
}

stamp() {
    printf '%s\n%s\n%s\n' "$here" "${WINDFALL_PYTHON-}" "$(sum_of_needs)" >"$venv/$stamp_name.new" &&
        mv -f "$venv/$stamp_name.new" "$venv/$stamp_name"
}

# --- one at a time -------------------------------------------------------------------------------------------

take_lock() {
    me="$(uname -n):$$"
    told=''
    until ln -sn "$me" "$lock" 2>/dev/null; do
        owner=$(readlink "$lock") || {
            [ -e "$lock" ] || continue # given back just now
            say "$lock is in the way; remove it"
            return 1
        }
        if dead "$owner"; then
            clear_lock "$owner"
            continue
        fi
        [ -n "$told" ] || say "another windfall is setting up ($owner); waiting (if that is not so, remove $lock)"
        told=yes
        sleep 0.2 2>/dev/null || sleep 1
    done
    rm -rf "$venv".work.* "$venv".old.* # of one that was killed
}

# Is the process that made a lock gone?  A process on another host counts as alive.
dead() {
    [ "${1%:*}" = "${me%:*}" ] && ! kill -0 "${1##*:}" 2>/dev/null && [ ! -d "/proc/${1##*:}" ]
}

# Several processes may find the same dead owner.  Only one at a time looks again and removes the lock; otherwise another
# could remove the lock of the next owner.
clear_lock() {
    if ln -sn "$me" "$lock.clear" 2>/dev/null; then
        [ "$(readlink "$lock")" = "$1" ] && rm -f "$lock"
        rm -f "$lock.clear"
    else
        clearer=$(readlink "$lock.clear") && dead "$clearer" && rm -f "$lock.clear"
    fi
}

give_back() { rm -rf "$work" "$lock"; }

# --- making it -----------------------------------------------------------------------------------------------

set_up() {
    log=$work/log
    mkdir -p "$work" || return 1
    python=$(find_python) || return 1
    unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV VIRTUAL_ENV
    export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
    if [ -z "$extra" ]; then
        say "setting up once (this takes a minute): Python environment in $venv"
    else
        say "installing what the ${extra}s need into $venv"
    fi
    if [ -f "$lock_file" ]; then
        cp "$lock_file" "$work/requirements" && make && return 0
        unreachable || say "$lock_file has no wheels for this machine; trying the newest packages that fit"
    fi
    if ! { [ -f "$lock_file" ] && unreachable; }; then
        needs "$extra" >"$work/requirements" && make && return 0
    fi
    say "the packages could not be installed; the last words were:"
    tail -n 25 "$log" >&2
    advise
    return 1
}

# Puts the packages of `requirements` into the environment that is there, or else into a new one.
make() {
    way=kept
    kept && "$venv/bin/python" -m pip --version >/dev/null 2>&1 && install_inside >"$log" 2>&1 && finish && return 0
    fill && finish
}

# Did the installers get no answer from a package index?
unreachable() { grep -qiE 'connection (broken|refused)|failed to establish|name resolution|dns error|error sending request' "$log"; }

# Does an environment of this checkout and this interpreter exist?  Then pip installs only packages that changed.
kept() {
    [ -x "$venv/bin/python" ] && [ -f "$venv/made-of" ] || return 1
    read -r of <"$venv/made-of"
    [ "$of" = "$here $python" ] && "$venv/bin/python" -c '' 2>/dev/null
}

finish() {
    site=$("$venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
        printf '%s\n' "$here/src" >"$site/windfall.pth" &&
        "$venv/bin/python" -I -c 'import msgspec, numpy, windfall' >>"$log" 2>&1 &&
        printf '%s\n%s\n' "$here $python" "$way" >"$venv/made-of" && stamp
}

# Prints the real path of the first interpreter that is new enough.  After an upgrade of `python3` a link to the real path
# dangles, and `fits` notices it; a link to `python3` would silently be of the wrong version.
find_python() {
    for name in ${WINDFALL_PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        "$name" -I -c 'import os, sys; sys.version_info < (3, 11) and sys.exit(1); print(os.path.realpath(sys.executable))' \
            2>/dev/null && return 0
    done
    if [ -n "${WINDFALL_PYTHON-}" ]; then
        say "WINDFALL_PYTHON=$WINDFALL_PYTHON is not Python 3.11 or newer"
    else
        say "no Python 3.11 or newer was found; install one, or set WINDFALL_PYTHON to its path"
    fi
    return 1
}

needs() {
    "$python" -I - "$here/pyproject.toml" "$1" <<'END'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
extra = project.get("optional-dependencies", {}).get(sys.argv[2], []) if sys.argv[2] else []
print(*project["dependencies"], *extra, sep="\n")
END
}

# HTCondor's library has wheels for fewer machines than the other packages.  Where no way works with it, the script leaves
# it out, and Windfall refuses only bags with expressions.
fill() {
    : >"$log"
    ways && return 0
    grep -q '^htcondor' "$work/requirements" || return 1
    sed '/^htcondor/d' "$work/requirements" >"$work/fewer" && mv "$work/fewer" "$work/requirements" || return 1
    ways && say "without HTCondor's library, which could not be installed: policies cannot be expressions here"
}

# Tries each way in turn, each from an empty directory.
ways() {
    for way in by_venv by_pip_outside by_pip_target by_virtualenv by_uv by_debian_wheel; do
        clear_away || return 1
        printf '\n== %s\n' "$way" >>"$log"
        $way >>"$log" 2>&1 && return 0
    done
    return 1
}

clear_away() {
    [ ! -e "$venv" ] && return 0
    old=$venv.old.$$
    mv "$venv" "$old" && rm -rf "$old"
}

install_inside() { "$venv/bin/python" -m pip install -q -r "$work/requirements"; }

# 1. The interpreter has venv and pip.
by_venv() { "$python" -m venv "$venv" && install_inside; }

# 2. Debian without python3-venv: no ensurepip, but a pip that can work on another environment (22.3 or newer).
by_pip_outside() {
    "$python" -m pip --version && bare_venv &&
        "$python" -m pip --python "$venv/bin/python" install -q -r "$work/requirements"
}

# 3. An older pip, which takes only a target folder.
by_pip_target() {
    "$python" -m pip --version && bare_venv &&
        "$python" -m pip install -q --target "$(site_packages)" -r "$work/requirements"
}

# 4, 5. Other tools that the user may have installed.
by_virtualenv() {
    command -v virtualenv && virtualenv -q -p "$python" "$venv" && install_inside
}

by_uv() {
    command -v uv && bare_venv && uv pip install -q --python "$venv/bin/python" -r "$work/requirements"
}

# 6. Debian and Ubuntu without any pip: apt fetches and dpkg unpacks a package without root.  Where the lists of packages
# are missing, too, apt fetches them into a folder of the set-up.
by_debian_wheel() {
    command -v apt-get && command -v dpkg || return 1
    (
        cd "$work" && mkdir -p deb lists/partial cache/archives/partial || exit 1
        set -- -q -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)"
        if ! apt-get "$@" download python3-pip-whl; then
            set -- "$@" -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache"
            apt-get "$@" update && apt-get "$@" download python3-pip-whl || exit 1
        fi
        for package in ./*.deb; do dpkg -x "$package" deb || exit 1; done
    ) || return 1
    for wheel in "$work"/deb/usr/share/python-wheels/pip-*.whl; do
        bare_venv && "$venv/bin/python" "$wheel/pip" install -q -r "$work/requirements" && return 0
    done
    return 1
}

# Makes an environment without pip; by hand where the interpreter came without the venv module.
bare_venv() {
    "$python" -m venv --without-pip "$venv" && return 0
    rm -rf "$venv"
    mkdir -p "$venv/bin" && ln -s "$python" "$venv/bin/python" && mkdir -p "$(site_packages)" &&
        printf 'home = %s\ninclude-system-site-packages = false\n' "${python%/*}" >"$venv/pyvenv.cfg"
}

site_packages() {
    printf '%s/lib/%s/site-packages\n' "$venv" "$("$python" -I -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"
}

advise() {
    say "what helps: a network connection to a Python package index, or one of"
    if command -v apt-get >/dev/null 2>&1; then
        say "    apt install python3-venv        (as root)"
    else
        say "    the venv and pip modules of $python"
    fi
    say "    uv or virtualenv in your PATH"
    say "    WINDFALL_PYTHON=/path/to/a/complete/python ./windfall …"
}
