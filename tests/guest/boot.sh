#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots a guest with a chosen memory topology and runs one command in it, with the host's root
# mounted read-only as its own. The exit status is the command's; 124 when the bound ran out, 125
# when QEMU itself crashed.
#
# Usage: boot.sh OUTDIR TOPOLOGY COMMAND      OUTDIR as made by prepare.sh
#   xeon-max  2 sockets x 4 tiles: 8 DDR nodes with a core each (0-7), 8 HBM nodes without (8-15),
#             HMAT; the shape of an Intel Xeon Max in SNC4 flat mode
#   plain     as many nodes as xeon-max, at the same distances, without HMAT; 2 cores on the first
#             tile of each socket, and CPUs whose name says that they carry HBM
#   cxl       1 node with 2 cores and a CXL type-3 memory device, no node yet (see cxl-online)
#   slow      1 node with 2 cores and HBM in cache mode before its memory, and one without that HMAT
#             rates slower: a lower memory tier made of plain RAM, where a page moves 40 times as
#             fast as in cxl
# /tmp and /run are the guest's own and vanish with it: what is to come back must be printed. The
# host's are under /run/host.
# A real kernel in software emulation: placement and migration are real, speeds are not.
# HEADRACE_GUEST_SECONDS (600) bounds the whole run. A guest that has not booted after 240 s is
# stopped.
set -euo pipefail

die() { echo "boot.sh: $*" >&2; exit 2; }
(($# == 3)) || die "usage: boot.sh OUTDIR TOPOLOGY COMMAND"
out=$1 topology=$2
command=$(printf '%s' "$3" | base64 -w0)
seconds=${HEADRACE_GUEST_SECONDS:-600}
[ -e "$out/initramfs.gz" ] || die "nothing to boot in $out; run prepare.sh $out first"
# The kernel keeps 2048 bytes of command line.
((${#command} < 1900)) || die "the command is too long; put it into a script and call that"

# CPU model name by which discovery finds HBM if no firmware table names it.
cpu_with_hbm="max,model-id=Intel(R) Xeon(R) CPU Max 9468"

# Rated values in the manner of the real machine: HBM a little slower to answer and much wider.
# Without QEMU's made-up L3: buffers of nodes this small would not pass it.
xeon_max() {
  local initiator target
  args=(-M q35,hmat=on -cpu max,l3-cache=off -smp 8,sockets=2,cores=4)
  sixteen_nodes hmat 0 1 2 3 4 5 6 7
  for initiator in {0..7}; do for target in {0..15}; do
    rate "$initiator" "$target"
  done; done
}

plain() {
  args=(-M q35 -cpu "$cpu_with_hbm,l3-cache=off" -smp 10,sockets=2,cores=5)
  sixteen_nodes plain 0-1 2 3 4 5-6 7 8 9
}

# With initiators, as HMAT has them, or plain; then the CPUs of each tile.
sixteen_nodes() {
  local i size node initiator target how=$1
  shift
  args+=(-m 3072M)
  for i in {0..15}; do
    size=128M node="nodeid=$i,memdev=m$i"
    ((i < 8)) && size=256M node+=",cpus=${*:i+1:1}"
    [ "$how" = hmat ] && node+=",initiator=$((i % 8))"
    args+=(-object "memory-backend-ram,id=m$i,size=$size" -numa "node,$node")
  done
  for initiator in {0..15}; do for target in {0..15}; do
    args+=(-numa "dist,src=$initiator,dst=$target,val=$(distance "$initiator" "$target")")
  done; done
}

# As the firmware of such machines says: by it the kernel chooses where memory goes on when a node
# is full, and which of several nodes is near the thread that touches a page.
distance() {
  local hbm=$((($1 >= 8) + ($2 >= 8)))
  if (($1 == $2)); then echo 10
  elif (($1 % 8 == $2 % 8)); then echo 13
  elif (($1 % 8 / 4 == $2 % 8 / 4)); then echo $((hbm > 0 ? 14 : 12))
  else echo $((hbm > 0 ? 23 : 21)); fi
}

# Latency in ns and bandwidth of one pair, by tile, socket and kind.
rate() {
  local initiator=$1 target=$2 latency=180 bandwidth=30
  local near=$((initiator / 4 == target % 8 / 4)) own=$((initiator == target % 8))
  ((near)) && latency=$((110 - 10 * own)) bandwidth=48
  if ((target >= 8)); then
    latency=$((latency + 20)) bandwidth=$((near ? 130 : 40))
  fi
  local pair="hmat-lb,initiator=$initiator,target=$target,hierarchy=memory"
  args+=(-numa "$pair,data-type=access-latency,latency=$latency"
    -numa "$pair,data-type=access-bandwidth,bandwidth=${bandwidth}G")
}

# -hypervisor: the kernel refuses CXL regions where it believes that it cannot flush CPU caches.
cxl() {
  args=(-M q35,cxl=on,hmat=on -cpu max,-hypervisor -smp 2,sockets=1,cores=2
    -m 2G,slots=4,maxmem=16G
    -object memory-backend-ram,id=m0,size=2G -numa node,nodeid=0,cpus=0-1,memdev=m0
    -object memory-backend-ram,id=cxl0,share=on,size=256M
    -device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1
    -device cxl-rp,port=0,bus=cxl.1,id=rp0,chassis=0,slot=2
    -device cxl-type3,bus=rp0,volatile-memdev=cxl0,id=cxl-mem0
    -M cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G)
}

# Latencies in ns; a third of the local node's speed, as CXL memory has.
slow() {
  local node
  args=(-M q35,hmat=on -cpu "$cpu_with_hbm" -smp 2,sockets=1,cores=2 -m 1152M
    -object memory-backend-ram,id=m0,size=1024M -object memory-backend-ram,id=m1,size=128M
    -numa node,nodeid=0,cpus=0-1,memdev=m0,initiator=0 -numa node,nodeid=1,memdev=m1,initiator=0)
  for node in 0 1; do
    local pair="hmat-lb,initiator=0,target=$node,hierarchy=memory"
    args+=(-numa "$pair,data-type=access-latency,latency=$((100 + 200 * node))"
      -numa "$pair,data-type=access-bandwidth,bandwidth=$((100 - 75 * node))G")
  done
  # After the rates of its node, without which QEMU refuses it.
  args+=(-numa
    hmat-cache,node-id=0,size=256M,level=1,associativity=direct,policy=write-back,line=64)
}

args=()
case $topology in
  xeon-max) xeon_max ;;
  plain) plain ;;
  cxl) cxl ;;
  slow) slow ;;
  *) die "unknown topology '$topology'; there are xeon-max, plain, cxl and slow" ;;
esac

# nokaslr: the kernel lies on node 0, not somewhere in a node that a test wants to fill.
# nohz=off: an idle CPU keeps its timers; tsc=reliable: no emulated HPET; no_timer_check: no panic
# where a busy host lets no tick through while the kernel looks for one (docs/design/guest.md).
# lpj: a jiffy of the TSC, of 4 GHz, which the kernel would measure on each CPU for half a second.
# guestreport: when a guest that still runs says where it hangs, in seconds since its boot.
# mitigations, init_on_alloc: a guest needs no such protection, which takes a tenth of QEMU's time.
kernel="console=ttyS0 panic=-1 quiet nokaslr nohz=off tsc=reliable no_timer_check lpj=16000000"
kernel+=" mitigations=off init_on_alloc=0"
kernel+=" guestreport=$((seconds > 120 ? seconds - 60 : seconds / 2)) guestcmd=$command"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
run_qemu() {
  local qemu i status=0
  timeout --foreground "$seconds" qemu-system-x86_64 "${args[@]}" \
    -accel tcg,thread=multi -nographic -nic none -no-reboot \
    -kernel "$out/vmlinuz" -initrd "$out/initramfs.gz" \
    -append "$kernel" \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=hostroot,bus=pcie.0 </dev/null 2>&1 &
  qemu=$!
  for ((i = 0; i < 240; ++i)); do
    if grep -q "GUEST UP" "$log" || ! kill -0 "$qemu" 2>/dev/null; then break; fi
    sleep 1
  done
  grep -q "GUEST UP" "$log" || kill "$qemu" 2>/dev/null || true
  wait "$qemu" || status=$?
  if ((i == 240)); then status=124; fi
  return "$status"
}
run_qemu |
  sed -u 's/\r//g' | tee "$log" |
    sed -un 's/.*GUEST UP/GUEST UP/; /GUEST UP/,/GUEST EXIT/p' || status=$?
# The console is the only way out of the guest, so the status comes back as its last marker.
# A message of the kernel may share its line.
exit_status=$(sed -n 's/.*GUEST EXIT \([0-9]\+\).*/\1/p' "$log" | tail -1)
if [ -n "$exit_status" ]; then exit "$exit_status"; fi
grep -q "GUEST UP" "$log" || tail -20 "$log" >&2  # what the lines above do not show
if ((status == 124)); then
  echo "boot.sh: the guest was stopped after $SECONDS s" >&2
  exit 124
fi
if ((status > 128)); then
  echo "boot.sh: QEMU itself crashed (status $status)" >&2
  exit 125
fi
die "the guest ended without saying how (QEMU's status: $status)"
