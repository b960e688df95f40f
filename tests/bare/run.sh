#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries this tree in a bare Debian, as a newcomer does: only git and make are there at first.
#
# Usage: run.sh SUITE [STAGE...]
#   SUITE  bookworm (Debian 12) or trixie (Debian 13)
#   STAGE  demo package unit wheel (default: demo package); stages.sh says what each does. Later
#          ones go on where earlier ones ended; a wheel is tried in a fresh root, so comes last
# HEADRACE_BARE_CCACHE=DIR lets the root use a compiler cache of this machine.
#
# Needs root, mmdebstrap and a mirror of Debian that apt knows. The bare root is made once and kept
# in build/bare/SUITE/base; every run works in a copy of it, which stays there if a stage fails.
set -euo pipefail

tree=$(cd "$(dirname "$0")/../.." && pwd)
suite=${1-}
stages=("${@:2}")
((${#stages[@]})) || stages=(demo package)
die() { echo "bare: $*" >&2; exit 1; }
case $suite in bookworm | trixie) ;; *) die "usage: run.sh bookworm|trixie [STAGE...]" ;; esac
for stage in "${stages[@]}"; do
  case $stage in demo | package | unit | wheel) ;; *) die "no stage $stage; see stages.sh" ;; esac
done
if ((EUID != 0)); then
  echo "note: a bare $suite is NOT tried: that needs root; run sudo $0 $*"
  exit 0
fi
if ! unshare --mount true 2>/dev/null; then
  echo "note: a bare $suite is NOT tried: mounts are not allowed in this container"
  exit 0
fi
command -v mmdebstrap >/dev/null ||
  die "no mmdebstrap; install it: apt install mmdebstrap debian-archive-keyring"
work=$tree/build/bare/$suite
root=$work/root
clone=$root$tree  # the same path as here, so that a compiler cache serves both
mkdir -p "$work/archives/partial"
exec 9>"$work/lock"
flock -n 9 || die "another run uses $work"

# Lines of sources.list: the suite and its security updates, from where apt gets Debian here.
sources() {
  apt-get indextargets --format '$(LABEL)|$(COMPONENT)|$(REPO_URI)' 'Identifier: Packages' |
    awk -F '|' -v suite="$suite" '$2 == "main" && !seen[$1]++ {
      if ($1 == "Debian") print "deb", $3, suite, "main"
      if ($1 == "Debian-Security") print "deb", $3, suite "-security main"}'
}

# apt and certificates as on this machine: no setting of a mirror is written in here.
make_base() {
  local lines
  mapfile -t lines < <(sources)
  ((${#lines[@]})) || die "apt knows no mirror of Debian; run apt-get update, or add one"
  rm -rf --one-file-system "$work/base.part"
  apt-config dump Acquire | grep -v '^Acquire::IndexTargets' >"$work/apt.conf"
  mmdebstrap --quiet --variant=minbase --include=ca-certificates,git,make \
    --aptopt="$work/apt.conf" "$suite" "$work/base.part" "${lines[@]}" \
    >"$work/base.log" 2>&1 9>&- ||
    die "mmdebstrap failed: $(grep -m1 '^E: ' "$work/base.log") (more in $work/base.log)"
  mkdir -p "$work/base.part/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/* "$work/base.part/usr/local/share/ca-certificates/" \
    2>/dev/null || true
  chroot "$work/base.part" update-ca-certificates >>"$work/base.log" 2>&1
  mv "$work/base.part" "$work/base"
}

# A fresh root with this commit and the changes of tracked files, cloned as a user clones.
make_root() {
  rm -rf --one-file-system "$root"
  cp -a "$work/base" "$root"
  for file in /etc/resolv.conf /etc/pip.conf; do
    [ ! -e $file ] || cp --remove-destination -L $file "$root/etc/"
  done
  mkdir -p "$clone"
  git clone -q --no-hardlinks "$tree" "$clone"
  git -C "$tree" diff --binary HEAD >"$work/changes.patch"
  [ ! -s "$work/changes.patch" ] || git -C "$clone" apply "$work/changes.patch"
}

# Runs a command in the root, with the packages that apt downloaded before. The mounts are this
# process's own, so they end with it however it ends, and no other process can reach through them.
in_root() {
  setpriv --pdeathsig KILL \
    unshare --mount --propagation private --pid --fork --kill-child bash -euc '
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    mkdir -p "$1/root/.ccache"
    mount --bind "$2/archives" "$1/var/cache/apt/archives"
    [ -z "$3" ] || mount --bind "$3" "$1/root/.ccache"
    exec chroot "$1" env -i "${@:4}"' - \
    "$root" "$work" "${HEADRACE_BARE_CCACHE-}" "${environment[@]}" "$@" </dev/null
}

certificates=/etc/ssl/certs/ca-certificates.crt
environment=(HOME=/root LANG=C.UTF-8 TERM=dumb PIP_COMPILE=0
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  PIP_CERT=$certificates SSL_CERT_FILE=$certificates)
[ -z "${HEADRACE_BARE_CCACHE-}" ] || environment+=(CCACHE_DIR=/root/.ccache)
while read -r name; do
  environment+=("$name=${!name}")
done < <(compgen -e | grep -xE 'JOBS|PIP_.*(URL|TIMEOUT)|(https?|no|all)_proxy|[A-Z]*_PROXY')

stage() {
  echo "bare: $suite: $1"
  in_root bash "$tree/tests/bare/stages.sh" "$1" || die "$suite: $1 failed; see $root"
}

[ -d "$work/base" ] || make_base
make_root
for name in "${stages[@]}"; do
  stage "$name"
  if [ "$name" = wheel ]; then  # the wheel is tried where no library or compiler is
    rm -rf "$work/dist"
    mv "$clone/dist" "$work/dist"
    make_root
    cp -r "$work/dist" "$clone/"
    stage alone
  fi
done
rm -rf --one-file-system "$root"
