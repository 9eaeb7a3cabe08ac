# Sourced by the scripts of this repository: numbered steps with their time, progress for anything
# over a second, and the toolchain's place on PATH. Needs bash, works in any folder.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# tools/setup links a Rust toolchain here when the one on PATH is too old; rustup's place is second.
export PATH="$root/.cache/bin:$PATH"
if ! command -v cargo >/dev/null 2>&1 && [[ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]]; then
  export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
fi

# Checkouts at different places share what ccache has.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$root}" CCACHE_NOHASHDIR=1

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# cores: how many processors this process may use.
cores() { nproc 2>/dev/null || echo 2; }

# progress LABEL: copies nothing; shows on stderr how far the lines on stdin are. On a terminal one
# line that is rewritten, elsewhere a line every 20 seconds, so a log stays short.
progress() {
  local label=$1 line='' last='' start=$SECONDS shown=$SECONDS width=100 status
  [[ -t 2 ]] && width=$(($(tput cols 2>/dev/null || echo 100) - 1))
  while true; do
    if IFS= read -r -t 1 line; then
      last=${line//[$'\r\t\e']/ }
      last=${last#"${last%%[! ]*}"}
    else
      status=$?
      ((status > 128)) || break
    fi
    if [[ -t 2 ]]; then
      ((SECONDS > start)) || continue
      status="  $label $((SECONDS - start)) s  $last"
      printf '\r\e[K%s' "${status:0:width}" >&2
    elif ((SECONDS - shown >= 20)); then
      shown=$SECONDS
      status="  $label: $((SECONDS - start)) s  $last"
      printf '%s\n' "${status:0:140}" >&2
    fi
  done
  if [[ -t 2 ]]; then printf '\r\e[K' >&2; fi
}

# logged LABEL LOG COMMAND...: runs it with its output in .cache/logs/LOG and progress on stderr.
# When it fails, shows the end of the log and returns its status.
logged() {
  local label=$1 log="$root/.cache/logs/$2" status=0
  shift 2
  mkdir -p "$root/.cache/logs"
  "$@" 2>&1 </dev/null | tee "$log" | progress "$label" || status=$?
  if ((status != 0)); then
    say "failed: $*"
    ((status <= 128)) || say "   (ended by signal $((status - 128)), from outside)"
    # Not "Compiling thiserror v2.0".
    grep -E -A 12 '(^|[^[:alnum:]_-])(error|Error|FAILED)[:[ ]' "$log" | tail -n 60 >&2 ||
      tail -n 40 "$log" >&2
    say "whole log: ${log#"$root"/}"
  fi
  return "$status"
}

# step TEXT COMMAND...: says what comes, runs it, says how long it took. Returns its status.
step() {
  local text=$1 start=$SECONDS status=0
  shift
  say "== $text"
  "$@" || status=$?
  if ((status == 0)); then
    say "   done in $((SECONDS - start)) s"
  else
    say "   FAILED after $((SECONDS - start)) s"
  fi
  return "$status"
}

# build PRESET "CMAKE OPTIONS" TARGET...: configures when needed and builds the targets.
build() {
  local preset=$1 options=$2
  shift 2
  # shellcheck disable=SC2086  # options are several words
  logged "configuring" "$preset-configure.log" \
    cmake --preset "$preset" -S "$root" $options || return
  logged "building" "$preset-build.log" \
    cmake --build "$root/build/$preset" --parallel "$(cores)" --target "$@"
}
