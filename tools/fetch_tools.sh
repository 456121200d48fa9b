#!/usr/bin/env bash
# Fetch what the tests talk to into .tools/, most of it as Debian packages, without root: make tools
# They are unpacked, not installed: no service is started and nothing outside .tools/ changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly servers=(prometheus promtool etcd nats-server)
readonly server_packages=(prometheus etcd-server nats-server)
readonly browser=(chromium chromedriver)
readonly browser_packages=(chromium chromium-driver fonts-liberation)
readonly manager=(systemd systemctl systemd-analyze)
readonly manager_packages=(systemd)
readonly tools=$PWD/.tools

has() { # every one of these programs
  local program
  for program; do [ -x "$tools/bin/$program" ] || return 1; done
}

# The only one that is no Debian package.
has kubectl || "${PYTHON:-python3}" tools/fetch_kubectl.py "$tools/bin"
if has "${servers[@]}" "${browser[@]}" "${manager[@]}"; then exit 0; fi

for command in apt-get dpkg-deb; do
  command -v "$command" >/dev/null || {
    echo "tools: no $command here. These programs are taken from Debian packages; on another system put" >&2
    echo "tools: ${servers[*]} ${browser[*]} ${manager[*]} into $tools/bin yourself (links will do)." >&2
    echo "tools: Tests that need them are skipped without." >&2
    exit 69
  }
done

mkdir -p "$tools/bin"
unpack=$(mktemp -d "$tools/unpack.XXXXXX")
trap 'rm -rf "$unpack"' EXIT

# Package lists and archives of our own, and no lock: the system's would need root.
apt() {
  apt-get -q -y -o "Dir::State::lists=$unpack/lists" -o "Dir::Cache=$unpack" -o "APT::Sandbox::User=" \
    -o "Debug::NoLocking=1" "$@" >>"$unpack/log" 2>&1 || {
    tail -n 5 "$unpack/log" >&2
    echo "tools: apt-get $* failed (its last lines are above)" >&2
    exit 69
  }
}

unpack_into() { # a folder, everything that was fetched
  local package
  for package in "$unpack"/archives/*.deb; do dpkg-deb -x "$package" "$1"; done
  rm "$unpack"/archives/*.deb
}

fetch_servers() {
  echo "tools: fetching ${server_packages[*]} into .tools (about 30 MB of downloads, 125 MB on disk)"
  (cd "$unpack/archives" && apt download "${server_packages[@]}")
  unpack_into "$unpack/servers"
  local program
  for program in "${servers[@]}"; do install -m 755 "$unpack"/servers/usr/*bin/"$program" "$tools/bin/$program"; done
}

# A browser is not one file: it comes with the shared libraries that this machine has not, and fonts.
fetch_browser() {
  echo "tools: fetching ${browser_packages[*]} and the libraries they lack here into .tools"
  echo "tools: (130 to 220 MB of downloads, 400 to 700 MB on disk: the more, the barer this machine is)"
  apt install --download-only --no-install-recommends "${browser_packages[@]}"
  unpack_into "$unpack/chromium"
  rm -rf "$unpack"/chromium/usr/share/{doc,locale,man} "$tools/chromium"
  write_font_settings "$unpack/chromium/fonts.conf"
  mv "$unpack/chromium" "$tools/chromium"
  local program
  for program in "${browser[@]}"; do write_wrapper "$program"; done
}

write_font_settings() { # a file; the same fonts on every machine, its own ones only for what these lack
  cat >"$1" <<EOF
<?xml version="1.0"?>
<fontconfig>
  <dir>$tools/chromium/usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>$tools/chromium/font-cache</cachedir>
  <match><edit name="family" mode="append_last"><string>Liberation Sans</string></edit></match>
  <alias><family>sans-serif</family><prefer><family>Liberation Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>Liberation Mono</family></prefer></alias>
</fontconfig>
EOF
}

write_wrapper() { # a program of the browser's package, so that it finds its libraries and fonts
  local libraries
  libraries=$(find "$tools/chromium" -name 'lib*.so*' -not -path '*/lib/chromium/*' -printf '%h\n' | sort -u | paste -sd:)
  cat >"$tools/bin/$1" <<EOF
#!/bin/sh
export LD_LIBRARY_PATH="$libraries" FONTCONFIG_FILE="$tools/chromium/fonts.conf"
exec "$tools/chromium/usr/lib/chromium/$1" "\$@"
EOF
  chmod 755 "$tools/bin/$1"
}

# Unpacked beside the machine's own, if it has one: it manages what a test starts, and nothing else.
fetch_manager() {
  echo "tools: fetching ${manager_packages[*]} and the libraries it lacks here into .tools (6 to 30 MB)"
  apt install --download-only --no-install-recommends --reinstall "${manager_packages[@]}"
  unpack_into "$unpack/manager"
  rm -rf "$unpack"/manager/usr/share/{doc,locale,man} "$tools/systemd"
  mv "$unpack/manager" "$tools/systemd"
  local program
  for program in "${manager[@]}"; do write_manager_wrapper "$program"; done
}

write_manager_wrapper() { # a program of the package, so that it finds its libraries, and units by their names
  local program libraries units
  program=$(find "$tools/systemd" -name "$1" -type f -perm -u+x -print -quit)
  libraries=$(find "$tools/systemd" -name 'lib*.so*' -printf '%h\n' | sort -u | paste -sd:)
  units=$(find "$tools/systemd" -path '*lib/systemd/system' -type d -print -quit)
  cat >"$tools/bin/$1" <<EOF
#!/bin/sh
export LD_LIBRARY_PATH="$libraries" SYSTEMD_UNIT_PATH="\${SYSTEMD_UNIT_PATH:-$units}"
exec "$program" "\$@"
EOF
  chmod 755 "$tools/bin/$1"
}

mkdir -p "$unpack/lists/partial" "$unpack/archives/partial"
apt update
has "${servers[@]}" || fetch_servers
has "${browser[@]}" || fetch_browser
has "${manager[@]}" || fetch_manager
for program in "${servers[@]}" "${browser[@]}" "${manager[@]}"; do
  "$tools/bin/$program" --version >/dev/null # starts at all: no shared library is missing
done
echo "tools: $(cd "$tools/bin" && echo *)"
