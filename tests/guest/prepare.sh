#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gets ready what a guest boots from: QEMU, Debian's generic kernel and an initramfs that mounts the
# host's root read-only.
#
# Usage: prepare.sh OUTDIR     OUTDIR receives vmlinuz and initramfs.gz, and is the cache: a second
# run does nothing and needs no network. Needs Debian 12 or 13, and root or sudo for packages.
# HEADRACE_GUEST_RELEASE is the Debian release whose kernel it is: bullseye has 5.10, bookworm 6.1,
# bookworm-backports, the default, 6.12.
set -euo pipefail

# Why 6.12 and not Debian 12's own 6.1: memory tiers from HMAT and volatile CXL regions (>= 6.3).
# Why QEMU >= 8.1 and not Debian 12's own 7.2: a CXL device with volatile memory. Debian 13 has 10.
release=bookworm-backports
kernel_release=${HEADRACE_GUEST_RELEASE:-$release}
min_qemu=8.1
# The initramfs needs the 9p root, and for the cxl topology the path from a region to a node. What a
# kernel has built in, or not at all, is passed over.
modules=(drivers/virtio/virtio drivers/virtio/virtio_ring drivers/virtio/virtio_pci_modern_dev
  drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci fs/netfs/netfs fs/fscache/fscache
  net/9p/9pnet net/9p/9pnet_virtio fs/9p/9p drivers/dax/device_dax drivers/dax/kmem
  drivers/cxl/cxl_acpi drivers/cxl/cxl_pci drivers/cxl/cxl_mem drivers/dax/dax_cxl)

die() { echo "prepare.sh: $*" >&2; exit 1; }
(($# == 1)) || die "usage: prepare.sh OUTDIR"
here=$(dirname "$(realpath "$0")")
out=$(realpath -m "$1")
mkdir -p "$out"
as_root() { if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi; }
apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@"; }
quietly() { "$@" >"$out/prepare.log" 2>&1; }
# Why the last quiet command failed: its own words where it is not the network.
failed() {
  local why
  why=$(grep -m1 '^E: ' "$out/prepare.log" 2>/dev/null || true)
  if [[ -n $why && ! $why =~ (Failed to fetch|Unable to fetch|Could not|resolv|onnect) ]]; then
    die "apt says: ${why#E: } (more in $out/prepare.log)"
  fi
  die "no reply from the Debian mirror, which is needed once for QEMU and a kernel; run it again" \
    "when online (more in $out/prepare.log)"
}

has_qemu() {
  local version
  version=$(qemu-system-x86_64 --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+' | head -1) ||
    return 1
  [ "$(printf '%s\n' "$min_qemu" "$version" | sort -V | head -1)" = "$min_qemu" ]
}

# Sources of apt, as lines of mirror, release and component.
known_sources() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages'
}

# The mirror of Debian that this system already uses.
debian_mirror() {
  local mirror
  mirror=$(known_sources | awk '$2 ~ /^(bookworm|trixie)$/ && $3 == "main" {print $1; exit}')
  [ -n "$mirror" ] || die "apt knows no mirror of Debian 12 or 13 (bookworm or trixie main); add" \
    "one to /etc/apt/sources.list.d, or run the guest tests on Debian"
  echo "$mirror"
}

# Debian 13 needs none of them.
add_backports() {
  local mirror
  grep -qE " ($release|trixie) main" <<<"$(known_sources)" && return
  mirror=$(debian_mirror)
  echo "deb $mirror $release main" |
    as_root tee /etc/apt/sources.list.d/headrace-backports.list >/dev/null
}

install_packages() {
  local tools=()
  # apt installs nothing while another package's dependencies are broken; its own remedy first.
  quietly apt-get check || quietly apt install -y -f --no-remove || return
  [ -x /bin/busybox ] || tools+=(busybox-static)
  command -v cpio >/dev/null || tools+=(cpio)
  command -v xz >/dev/null || tools+=(xz-utils)
  if ((${#tools[@]})); then
    quietly apt install -y --no-install-recommends "${tools[@]}" || return
  fi
  has_qemu && return
  local from=()
  grep -q " trixie main" <<<"$(known_sources)" || from=(-t $release)
  quietly apt install -y --no-install-recommends "${from[@]}" qemu-system-x86 qemu-system-common
}

# Fetches the kernel's package and unpacks it, nothing installed. Its release is asked by lists of
# its own, so that the system's apt stays as it is.
fetch_kernel() {
  local kernel lists=$out/apt mirror
  mirror=$(debian_mirror)
  mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
  echo "deb $mirror $kernel_release main" >"$lists/sources.list"
  local own=(-o Dir::Etc::SourceList="$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Lists="$lists/lists" -o Dir::Cache="$lists/cache" -o APT::Sandbox::User=
    -o Dir::State::Status=/dev/null)  # what is installed here is no candidate
  quietly apt-get -qq "${own[@]}" -o Acquire::Retries=2 update || return 1
  kernel=$(apt-cache "${own[@]}" depends linux-image-amd64 | awk '/Depends:/ {print $2; exit}')
  [ -n "$kernel" ] || return 1
  rm -rf "$out/kernel" "$out/package"
  mkdir "$out/package"
  (cd "$out/package" && quietly apt-get -qq "${own[@]}" download "$kernel") || return 1
  rm -rf "$lists"
  dpkg -x "$out"/package/*.deb "$out/kernel.part"
  echo "$kernel_release" >"$out/kernel.part/release"
  rm -rf "$out/package"
  mv "$out/kernel.part" "$out/kernel"
}

# A static busybox, the modules and ./init, packed.
build_initramfs() {
  local root=$out/initramfs source module
  source=$(find "$out/kernel" -type d -path '*/modules/*' -prune | head -1)/kernel
  rm -rf "$root"
  mkdir -p "$root"/{bin,mod,proc,sys,dev,newroot}
  cp /bin/busybox "$root/bin/"
  for module in "${modules[@]}"; do
    if [ -e "$source/$module.ko.xz" ]; then
      xz -dc "$source/$module.ko.xz" >"$root/mod/${module##*/}.ko"
    elif [ -e "$source/$module.ko" ]; then
      cp "$source/$module.ko" "$root/mod/"
    fi
  done
  install -m 755 "$here/init" "$root/init"
  (cd "$root" && find . | sort | cpio --quiet -o -H newc | gzip -1) >"$out/initramfs.part"
  rm -rf "$root"
  cp "$out"/kernel/boot/vmlinuz-* "$out/vmlinuz"
  mv "$out/initramfs.part" "$out/initramfs.gz"
}

if [ "$(cat "$out/kernel/release" 2>/dev/null)" != "$kernel_release" ]; then
  rm -rf "$out/kernel"
fi
stamp=$(cat "$here/prepare.sh" "$here/init" | sha256sum | cut -d' ' -f1)
if has_qemu && [ -d "$out/kernel" ] && [ -e "$out/vmlinuz" ] &&
  [ "$(cat "$out/stamp" 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi

if ! has_qemu || [ ! -d "$out/kernel" ] || [ ! -x /bin/busybox ]; then
  ((EUID == 0)) || sudo -n true 2>/dev/null ||
    die "needs root to install QEMU; run it once with sudo"
  add_backports
  quietly apt -o Acquire::Retries=2 update || failed
  install_packages || failed
fi
[ -d "$out/kernel" ] || fetch_kernel || failed
build_initramfs || die "the initramfs could not be packed in $out; is the disk full?"
echo "$stamp" >"$out/stamp"
rm -f "$out/prepare.log"
