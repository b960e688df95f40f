#!/usr/bin/env bash
# Installs the Debian packages listed in the files given, those that are missing, and nothing else.
# Usage: setup.sh LIST...      As root, or as a user with sudo.
set -euo pipefail

wanted=$(sed 's/#.*//' "$@" | xargs)
missing=()
for package in $wanted; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: these packages are missing and need root to install: ${missing[*]}" >&2
    exit 5
  fi
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
