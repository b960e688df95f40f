#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages listed in the files given, those that are missing, and nothing else.
# Usage: setup.sh LIST...      As root, or as a user with sudo.
#
# Debian 12, Debian 13 and Ubuntu 24.04 have them by these names; of `a|b` the first that apt knows
# is taken. Elsewhere nothing is installed, and the build names each library that it does not find.
set -euo pipefail

die() { echo "setup: $*" >&2; exit 5; }
read -rd '' -a wanted < <(sed 's/#.*//' "$@") || true  # it ends without a NUL

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "setup: no apt here, so install what Debian's packages hold: ${wanted[*]%%|*}" >&2
  exit 0
fi

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
known() { [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]; }

missing=()
for choice in "${wanted[@]}"; do
  for package in ${choice//|/ }; do
    if installed "$package"; then continue 2; fi
  done
  missing+=("$choice")
done
((${#missing[@]})) || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo)
  [ -t 0 ] || as_root+=(-n)  # nobody is there to type a password
  "${as_root[@]}" true 2>/dev/null ||
    die "packages are missing; install them as root: apt install ${missing[*]%%|*}"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 "$@" >"$log" 2>&1
}

apt update && updated=$(grep -c 'Failed to fetch' "$log" || true) || updated=1
packages=()
for choice in "${missing[@]}"; do
  taken=${choice%%|*}
  for package in ${choice//|/ }; do
    if known "$package"; then taken=$package && break; fi
  done
  packages+=("$taken")
done
echo "setup: installing ${packages[*]}"
apt install -y --no-install-recommends "${packages[@]}" && exit 0
((updated == 0)) ||
  die "no reply from the mirror of packages; when online again: make, or apt install ${packages[*]}"
why=$(grep -m1 '^E: ' "$log" || tail -n 1 "$log")
die "apt says: ${why#E: }; to see more: apt install ${packages[*]}"
