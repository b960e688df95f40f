#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the libraries that a build for aarch64 links, from the mirrors this system uses, and
# unpacks them: nothing of them is installed, and the system stays one of its own architecture.
#
# Usage: prepare.sh OUTDIR     OUTDIR/root receives them, and is the cache: a second run does
# nothing and needs no network. Needs Debian; the compiler is of tools/packages-test.txt.
set -euo pipefail

gcc=$(aarch64-linux-gnu-g++ -dumpversion)
packages=(libc6-dev "libstdc++-${gcc%%.*}-dev" libfmt-dev libhwloc-dev liburing-dev libtbb-dev
  libhwy-dev libxxhash-dev nlohmann-json3-dev libgtest-dev librapidcheck-dev)

die() { echo "prepare.sh: $*" >&2; exit 1; }
(($# == 1)) || die "usage: prepare.sh OUTDIR"
out=$(realpath -m "$1")
stamp=$(sha256sum <"$(realpath "$0")" | cut -d' ' -f1)
[ "$(cat "$out/stamp" 2>/dev/null)" = "$stamp" ] && exit 0

rm -rf "$out"
mkdir -p "$out"/apt/{lists,cache/archives}/partial "$out/root.part"
: >"$out/apt/status" # nothing is installed there, so that all is fetched
fetch() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Debug::NoLocking=1 \
    -o Dir::State::lists="$out/apt/lists" -o Dir::State::status="$out/apt/status" \
    -o Dir::Cache="$out/apt/cache" -o Acquire::Retries=2 -o APT::Sandbox::User=root "$@" \
    >"$out/prepare.log" 2>&1 ||
    die "no reply from the Debian mirror, which is needed once for libraries of aarch64; run it" \
      "again when online (more in $out/prepare.log)"
}
fetch update
fetch install -y --download-only --no-install-recommends "${packages[@]}"
for package in "$out"/apt/cache/archives/*.deb; do dpkg -x "$package" "$out/root.part"; done
# Absolute links would lead to the host's libraries.
find "$out/root.part" -type l -lname '/*' | while read -r link; do
  ln -sfn "$(realpath -m --relative-to "$(dirname "$link")" "$out/root.part$(readlink "$link")")" \
    "$link"
done
mv "$out/root.part" "$out/root"
rm -rf "$out/apt" "$out/prepare.log"
echo "$stamp" >"$out/stamp"
