#!/usr/bin/env bash
# Builds slotd, and runs `slotd install` of the new program for this user. Run it again to upgrade
# in place while jobs are running. See --help.

set -euo pipefail

usage() {
  cat <<'END'
Usage: contrib/install.sh [OPTIONS]

Builds slotd, installs it for this user, starts it, and sends a first job through the queue.
Run again, it upgrades in place: running jobs continue, and earlier settings are kept unless given again.

      --repo-root PATH         build from this repository (default: that of this script)
      --profile NAME           cargo profile to build (default: release)
      --install-bin-dir PATH   directory of the binary and commands (default: ~/.local/bin)
      --link-dir PATH          directory for links to the commands, for example /usr/local/bin
                               (default: none; with --uninstall they are removed)
      --runtime-root PATH      SLOTD_ROOT (default: ~/.local/share/slotd)
      --config-dir PATH        directory of slotd.env (default: ~/.config/slotd)
      --systemd-user-dir PATH  directory of the user unit (default: ~/.config/systemd/user)
      --cpu-partitions VALUE   SLOTD_CPU_PARTITIONS (default: cpu)
      --gpu-partitions VALUE   SLOTD_GPU_PARTITIONS (default: gpu)
      --features VALUE         SLOTD_FEATURES (default: unset)
      --notify-cmd VALUE       SLOTD_NOTIFY_CMD (default: unset)
      --cgroup-base PATH       SLOTD_CGROUP_BASE, a writable cgroup v2 subtree, or auto for that of the
                               user service (default: unset)
      --skip-build             use the result of an earlier build
      --skip-systemd           do not install or start a user service; start nothing
      --uninstall              remove the installation; keep the runtime root with its jobs and history
      --purge-runtime          with --uninstall: also remove the runtime root
  -h, --help                   print this help

Without a systemd user manager the daemon is started in the background and logs to run/slotd.log below the runtime root.
Start it again with `slotd-daemon start`, for example after a reboot.
END
}

# Prints an error and its remedy, and exits.
die() {
  printf 'install.sh: error: %s\n' "$*" >&2
  exit 1
}
misused() {
  printf 'install.sh: error: %s\nTry "contrib/install.sh --help" for more information\n' "$*" >&2
  exit 2
}

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P) || exit 1
repo_root=$(dirname -- "$here")
profile=release
skip_build=false uninstall=false purge=false
# The paths of the installation, and options that only `slotd install` accepts.
places=() settings=()

while (($#)); do
  option=$1
  shift
  value=''
  case $option in
    --skip-build | --skip-systemd | --uninstall | --purge-runtime | -h | --help) ;;
    --skip-build=* | --skip-systemd=* | --uninstall=* | --purge-runtime=*) misused "${option%%=*} takes no value" ;;
    --*=*)
      value=${option#*=}
      option=${option%%=*}
      ;;
    --repo-root | --profile | --install-bin-dir | --link-dir | --runtime-root | --config-dir | --systemd-user-dir | \
      --cpu-partitions | --gpu-partitions | --features | --notify-cmd | --cgroup-base)
      (($#)) || misused "$option needs a value"
      value=$1
      shift
      ;;
  esac
  case $option in
    --repo-root) repo_root=$value ;;
    --profile) profile=$value ;;
    --install-bin-dir | --link-dir | --runtime-root | --config-dir | --systemd-user-dir) places+=("$option=$value") ;;
    --cpu-partitions | --gpu-partitions | --features | --notify-cmd | --cgroup-base) settings+=("$option=$value") ;;
    --skip-systemd) settings+=("$option") ;;
    --skip-build) skip_build=true ;;
    --uninstall) uninstall=true ;;
    --purge-runtime) purge=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) misused "unknown option: $option" ;;
  esac
done
if $purge && ! $uninstall; then
  misused "--purge-runtime removes all jobs and their history, and is only allowed with --uninstall"
fi

cargo=$(command -v cargo) || cargo=${CARGO_HOME:-${HOME:-}/.cargo}/bin/cargo

# Prints the path of the binary that cargo builds for the profile.
built() {
  local target='' dir
  if [[ -x $cargo ]]; then
    target=$(cd "$repo_root" && "$cargo" metadata --format-version 1 --no-deps --offline 2>/dev/null |
      sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p') || target=''
  fi
  case $profile in
    dev | test) dir=debug ;;
    bench) dir=release ;;
    *) dir=$profile ;;
  esac
  echo "${target:-${CARGO_TARGET_DIR:-$repo_root/target}}/$dir/slotd"
}

# An installation can be removed without building slotd again.
if $uninstall && [[ -x $(built) ]]; then skip_build=true; fi
if ! $skip_build; then
  [[ -x $cargo ]] || die "cargo is not installed: install Rust from https://rustup.rs, or use an earlier build with --skip-build"
  [[ -f $repo_root/Cargo.toml ]] || die "no Cargo.toml in $repo_root: set the repository with --repo-root"
  printf '==> building slotd (profile %s)\n' "$profile"
  (cd "$repo_root" && "$cargo" build --locked --profile "$profile" --bin slotd) ||
    die "the build failed: see cargo's messages above"
fi
program=$(built)
[[ -x $program ]] || die "$program does not exist: run again without --skip-build"

if $uninstall; then
  if $purge; then places+=(--purge-runtime); fi
  exec "$program" uninstall "${places[@]}"
fi
exec "$program" install "${places[@]}" "${settings[@]}"
