#!/usr/bin/env bash
# Fetch the servers that the tests talk to into .tools/, as Debian packages, without root: make tools
# They are unpacked, not installed: no service is started and nothing outside .tools/ changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly packages=(prometheus etcd-server nats-server)
readonly programs=(prometheus promtool etcd nats-server)
readonly tools=$PWD/.tools

has_all() {
  local program
  for program in "${programs[@]}"; do [ -x "$tools/bin/$program" ] || return 1; done
}

if has_all; then exit 0; fi

for command in apt-get dpkg-deb; do
  command -v "$command" >/dev/null || {
    echo "tools: no $command here. These programs are taken from Debian packages; on another system put" >&2
    echo "tools: ${programs[*]} into $tools/bin yourself. Tests that need them are skipped without." >&2
    exit 69
  }
done

echo "tools: fetching ${packages[*]} into .tools (about 30 MB of downloads, 125 MB on disk)"
unpack=$(mktemp -d "${TMPDIR:-/tmp}/tools.XXXXXX")
trap 'rm -rf "$unpack"' EXIT

# Package lists of our own: reading the system's may need root to refresh them first.
mkdir -p "$unpack/lists/partial" "$unpack/archives/partial" "$unpack/files"
apt() { apt-get -q -o "Dir::State::lists=$unpack/lists" -o "Dir::Cache=$unpack" -o "APT::Sandbox::User=" "$@"; }
apt update >"$unpack/log" 2>&1 && (cd "$unpack" && apt download "${packages[@]}") >>"$unpack/log" 2>&1 || {
  tail -n 5 "$unpack/log" >&2
  echo "tools: apt-get could not fetch ${packages[*]} (its last lines are above)" >&2
  exit 69
}
for package in "$unpack"/*.deb; do dpkg-deb -x "$package" "$unpack/files"; done

mkdir -p "$tools/bin"
for program in "${programs[@]}"; do
  install -m 755 "$unpack"/files/usr/*bin/"$program" "$tools/bin/$program"
  "$tools/bin/$program" --version >/dev/null  # starts at all: no shared library is missing
done
echo "tools: $(cd "$tools/bin" && echo *)"
