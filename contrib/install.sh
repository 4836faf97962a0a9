#!/usr/bin/env bash
# Builds slotd, installs it for this user, starts it, and sends a first job through the queue. Run again, it upgrades
# in place while jobs run. See --help.
#
# Where things go, and why:
#
# * The Slurm commands are links to the one binary. Only with a runtime root other than the default one are they small
#   scripts that set SLOTD_ROOT: a link costs nothing, such a script an extra process image for each call.
# * The environment file is edited line by line. What the command line gives is written in a form that systemd and a
#   shell read alike; every other line, be it a comment or a variable set by hand, stays as it is.
# * Man pages and completions are written by the binary itself, end in a line that says so, and only files with that line
#   are ever replaced or removed.
# * Nothing is replaced in place: each file is written beside its place and renamed, so that a running program, or an
#   interrupted installation, never sees half of one.

set -euo pipefail

usage() {
  cat <<'END'
Usage: contrib/install.sh [OPTIONS]

Builds slotd, installs it for this user, starts it, and sends a first job through the queue.
Run again, it upgrades in place: running jobs go on, and earlier settings stay unless given anew.

      --repo-root PATH         build from this repository (default: the one of this script)
      --profile NAME           cargo profile to build (default: release)
      --install-bin-dir PATH   binary and commands (default: ~/.local/bin)
      --runtime-root PATH      SLOTD_ROOT (default: ~/.local/share/slotd)
      --config-dir PATH        directory of slotd.env (default: ~/.config/slotd)
      --systemd-user-dir PATH  directory of the user unit (default: ~/.config/systemd/user)
      --cpu-partitions VALUE   SLOTD_CPU_PARTITIONS (default: cpu)
      --gpu-partitions VALUE   SLOTD_GPU_PARTITIONS (default: gpu)
      --features VALUE         SLOTD_FEATURES (default: unset)
      --notify-cmd VALUE       SLOTD_NOTIFY_CMD (default: unset)
      --cgroup-base PATH       SLOTD_CGROUP_BASE, a writable cgroup v2 subtree (default: unset)
      --skip-build             use what an earlier build left
      --skip-systemd           do not install or start a user service; nothing is started then
      --uninstall              remove the installation; the runtime root with its jobs and history stays
      --purge-runtime          with --uninstall: remove the runtime root as well
  -h, --help                   print this text

Without a systemd user manager the daemon is started detached, logs to run/slotd.log below the runtime root, and is
started again, after a reboot say, by `slotd-daemon start`.
END
}

say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
# One line: what went wrong, and what to do.
die() {
  printf 'install.sh: error: %s\n' "$*" >&2
  exit 1
}
misused() {
  printf 'install.sh: error: %s\nTry "contrib/install.sh --help" for more information\n' "$*" >&2
  exit 2
}

# In every script that this installer writes, so that it is known as ours later.
readonly MARK='# Written by the installer of slotd.'
readonly UNIT=slotd.service
# The last line of every man page and completion script that slotd makes, a comment.
readonly PAGE_MARK='(#|\.\\") Made by slotd\.'

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P) || exit 1
# shellcheck source-path=SCRIPTDIR source=slotd-daemon
source "$here/slotd-daemon" || exit 1

# ---- the command line --------------------------------------------------------------------------------------------

[[ -n ${HOME:-} && $HOME == /* ]] || die "HOME is not an absolute path: set it to your home directory"
# HOME may be spelled with a slash at its end.
home=${HOME%/}

repo_root=$(dirname -- "$here")
profile=release
bin_dir=$home/.local/bin
root_given=''
default_root=$home/.local/share/slotd
config_dir=$home/.config/slotd
unit_dir=$home/.config/systemd/user
skip_build=false skip_systemd=false uninstall=false purge=false
# Variables of the environment file that the command line gives.
declare -A given=()

# An absolute path without trailing slashes, into REPLY.
absolute() {
  local option=$1 path=$2
  [[ -n $path ]] || misused "$option: the path is empty"
  # The shell leaves this one alone in --option=~/path.
  # shellcheck disable=SC2088
  if [[ $path == '~' || $path == '~/'* ]]; then path=$home${path:1}; fi
  if [[ $path != /* ]]; then path=$PWD/$path; fi
  while [[ $path == */ && $path != / ]]; do path=${path%/}; done
  storable "$option" "$path"
  REPLY=$path
}

# Refuses what systemd would not take from an environment file.
storable() {
  local option=$1 value=$2
  if LC_ALL=C eval '[[ ${value//$'"'\\t'"'/} == *[[:cntrl:]]* ]]'; then
    misused "$option: a line break or another control character cannot stand in an environment file: $(printf %q "$value")"
  fi
  if ! printf %s "$value" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1; then
    misused "$option: no text in UTF-8, which systemd would ignore: $(printf %q "$value")"
  fi
}

while (($#)); do
  option=$1
  shift
  case $option in
    --repo-root | --profile | --install-bin-dir | --runtime-root | --config-dir | --systemd-user-dir | \
      --cpu-partitions | --gpu-partitions | --features | --notify-cmd | --cgroup-base)
      (($#)) || misused "$option needs a value"
      value=$1
      shift
      ;;
    --*=*)
      value=${option#*=}
      option=${option%%=*}
      case $option in
        --skip-build | --skip-systemd | --uninstall | --purge-runtime | --help) misused "$option takes no value" ;;
      esac
      ;;
  esac
  case $option in
    --repo-root) absolute "$option" "$value" && repo_root=$REPLY ;;
    --profile)
      [[ -n $value ]] || misused "--profile: the name is empty"
      profile=$value
      ;;
    --install-bin-dir) absolute "$option" "$value" && bin_dir=$REPLY ;;
    --runtime-root) absolute "$option" "$value" && root_given=$REPLY ;;
    --config-dir) absolute "$option" "$value" && config_dir=$REPLY ;;
    --systemd-user-dir) absolute "$option" "$value" && unit_dir=$REPLY ;;
    --cpu-partitions) storable "$option" "$value" && given[SLOTD_CPU_PARTITIONS]=$value ;;
    --gpu-partitions) storable "$option" "$value" && given[SLOTD_GPU_PARTITIONS]=$value ;;
    --features) storable "$option" "$value" && given[SLOTD_FEATURES]=$value ;;
    --notify-cmd) storable "$option" "$value" && given[SLOTD_NOTIFY_CMD]=$value ;;
    --cgroup-base)
      [[ -z $value || $value == /* ]] || misused "--cgroup-base: no absolute path: $value"
      storable "$option" "$value" && given[SLOTD_CGROUP_BASE]=$value
      ;;
    --skip-build) skip_build=true ;;
    --skip-systemd) skip_systemd=true ;;
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
  misused "--purge-runtime removes all jobs and their history, and is taken only together with --uninstall"
fi

# Man pages and completions: where man, bash, zsh and fish look in a home.
data_dir=${XDG_DATA_HOME:-$home/.local/share}
declare -A page_dirs=(
  [man]=$data_dir/man/man1
  [bash]=$data_dir/bash-completion/completions
  [zsh]=$data_dir/zsh/site-functions
  [fish]=${XDG_CONFIG_HOME:-$home/.config}/fish/completions
)

env_file=$config_dir/slotd.env
unit_file=$unit_dir/$UNIT
daemon_script=$bin_dir/slotd-daemon

if [[ -e $env_file ]]; then
  env_file_read "$env_file" || die "$ENV_FILE_ERROR: correct or remove the line"
fi
# shellcheck disable=SC2031 # A key of the file.
old_root=${SETTINGS[SLOTD_ROOT]:-}
root=${root_given:-${old_root:-$default_root}}

# A directory that is somebody's whole world is no runtime root, least of all for --purge-runtime. Looked at as written and
# with links followed: /lib may be a link to /usr/lib.
refuse_root() {
  local path=$1 kept=${2%/}
  case $path in
    / | /bin | /boot | /boot/* | /dev | /dev/* | /etc | /home | /lib | /lib32 | /lib64 | /mnt | /media | /opt | /proc | \
      /proc/* | /root | /run | /sbin | /srv | /sys | /sys/* | /tmp | /usr | /usr/bin | /usr/lib | /usr/local | \
      /usr/local/* | /usr/share | /var | /var/lib | /var/tmp)
      die "the runtime root must be a directory of its own, not $root: choose another with --runtime-root"
      ;;
  esac
  case $kept/ in
    "$path"/*) die "the runtime root must not be or hold the home directory, as $root does: choose another with --runtime-root" ;;
  esac
}
case $root/ in
  */../* | */./* | *//*) die "the runtime root must be written without . and .. and double slashes: $root" ;;
esac
refuse_root "$root" "$home"
refuse_root "$(realpath -m -- "$root")" "$(realpath -m -- "$home")"

# ---- helpers -----------------------------------------------------------------------------------------------------

# Writes standard input to a file: beside it first, then by renaming.
write_file() {
  local mode=$1 path=$2 new
  # A link, made by a manager of dot files say, stays one.
  if [[ -L $path && -e $path ]]; then path=$(readlink -f -- "$path"); fi
  new=$(dirname -- "$path")/.$(basename -- "$path").$$
  if ! { cat >"$new" && chmod "$mode" "$new" && mv -fT -- "$new" "$path"; } 2>/dev/null; then
    rm -f -- "$new"
    die "$path cannot be written: check the directory's owner, mode and free space"
  fi
}

make_dir() {
  mkdir -p -- "$1" 2>/dev/null || die "the directory $1 cannot be made: check who owns the one above it"
}

# Whether what has the name of a command in the bin directory came from here.
is_ours() {
  local path=$1 target line
  if [[ -L $path ]]; then
    target=$(readlink -- "$path")
    [[ $target == slotd || $target == "$bin_dir/slotd" ]]
  else
    [[ -f $path && -r $path ]] && { read -r -n 80 _ && read -r -n 80 line; } <"$path" && [[ $line == "$MARK"* ]]
  fi
}

# The man pages or completion scripts in a directory that came from slotd: one process for all of them.
our_pages() { grep -lsxE "$PAGE_MARK" -- "$1"/* || true; }

# A systemd user manager that answers; its address may be missing from the environment, under su or cron.
have_manager() {
  command -v systemctl >/dev/null || return 1
  systemctl --user show-environment >/dev/null 2>&1 && return
  local dir=/run/user/$UID
  [[ -z ${XDG_RUNTIME_DIR:-} && -S $dir/systemd/private ]] || return 1
  export XDG_RUNTIME_DIR=$dir
  if [[ -z ${DBUS_SESSION_BUS_ADDRESS:-} && -S $dir/bus ]]; then
    export DBUS_SESSION_BUS_ADDRESS=unix:path=$dir/bus
  fi
  systemctl --user show-environment >/dev/null 2>&1
}

# The watchers of running jobs, which outlive their daemon: forks of its launcher, `slotd __launcher ROOT`, whose
# parent is not the daemon (that one is the launcher).
running_watchers() {
  local file pid parent daemon=$1 args
  for file in /proc/[0-9]*/cmdline; do
    # A process may be gone by now.
    { mapfile -d '' -t args <"$file"; } 2>/dev/null || continue
    [[ ${args[1]:-} == __launcher && ${args[2]:-} == "$root" ]] || continue
    pid=${file#/proc/}
    pid=${pid%/cmdline}
    parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null) || continue
    if [[ -z $daemon || $parent != "$daemon" ]]; then echo "$pid"; fi
  done
}

# Stops whoever serves a root, however it was started. $2: a process that is left alone.
stop_daemon() {
  local of=$1 spared=${2:-} pid
  pid=$(daemon_pid "$of")
  if [[ -z $pid || $pid == "$spared" ]]; then return; fi
  say "stop the daemon of $of (process $pid); running jobs go on"
  daemon_stop "$of" "$pid" || die "process $pid does not end: kill it, and run the installer again"
}

# ---- uninstall ---------------------------------------------------------------------------------------------------

# Below a runtime root, what slotd itself makes, by name: should the root hold anything else, that stays.
purge_root() {
  local run=$root/run lib=$root/lib
  rm -rf -- "$lib/jobs" "$lib/state.db" "$lib/state.db-wal" "$lib/state.db-shm" "$run/slotd.sock" "$run/slotd.lock" \
    "$run/slotd.log" "$run/slotd.log.old" "$run/launcher.lock" ||
    die "$root cannot be removed completely: remove what is left by hand"
  rmdir -- "$run" "$lib" "$root" 2>/dev/null || true
  if [[ -e $root ]]; then
    note "$root holds files that slotd did not make; they stay:"
    (cd "$root" && find . -mindepth 1 -maxdepth 2 -not -type d | sed 's/^/      /')
  else
    note "removed the runtime root $root"
  fi
}

# Removes the man pages and completions, and directories that are empty then.
remove_pages() {
  local dir path removed=false
  for dir in "${page_dirs[@]}"; do
    while IFS= read -r path; do
      rm -f -- "$path" || die "$path cannot be removed: remove it by hand"
      removed=true
    done < <(our_pages "$dir")
    if [[ -d $dir ]]; then rmdir -- "$dir" "$(dirname -- "$dir")" 2>/dev/null || true; fi
  done
  if $removed; then note "removed the man pages and completions"; fi
}

uninstall() {
  local path pid left=()
  local found=false
  pid=$(daemon_pid "$root")
  if $purge; then
    mapfile -t left < <(running_watchers "$pid")
    if ((${#left[@]})); then
      die "there are running jobs, ${#left[@]} of them (see squeue): end them with scancel --me, or wait, before --purge-runtime removes their files"
    fi
    if [[ -d $root && ! -e $root/run/slotd.lock && ! -e $root/lib/state.db ]]; then
      [[ -z $(find "$root" -not -type d) ]] || die "$root does not look like a runtime root of slotd: remove it by hand if you mean it"
    fi
  fi
  say "uninstall slotd"
  if [[ -e $unit_file || -L $unit_file ]]; then
    if have_manager; then
      systemctl --user disable --now "$UNIT" >/dev/null 2>&1 ||
        note "systemctl --user disable --now $UNIT failed; the daemon is stopped by its process"
    fi
    rm -f -- "$unit_file" || die "$unit_file cannot be removed: remove it by hand"
    if have_manager; then systemctl --user daemon-reload >/dev/null 2>&1 || true; fi
    note "removed $unit_file"
    found=true
  fi
  stop_daemon "$root"
  for path in "$bin_dir"/*; do
    # Whatever this or an earlier version linked.
    if is_ours "$path" || [[ -e $path && ($path == "$bin_dir/slotd" || $path == "$bin_dir/slotd.bin") ]]; then
      rm -f -- "$path" || die "$path cannot be removed: remove it by hand"
      found=true
    fi
  done
  if [[ -e $env_file || -L $env_file ]]; then
    rm -f -- "$env_file" || die "$env_file cannot be removed: remove it by hand"
    rmdir -- "$config_dir" 2>/dev/null || true
    note "removed $env_file"
    found=true
  fi
  remove_pages
  if $found; then note "removed the commands from $bin_dir"; else note "nothing is installed in $bin_dir and $config_dir"; fi
  if $purge; then
    if [[ -d $root ]]; then purge_root; else note "there is no runtime root $root"; fi
    return
  fi
  mapfile -t left < <(running_watchers '')
  if ((${#left[@]})); then
    note "running jobs (${#left[@]}) go on to their ends, which are recorded when slotd is installed again"
  fi
  if [[ -d $root ]]; then note "kept the jobs and their history: $root"; fi
}

if $uninstall; then
  uninstall
  exit 0
fi

# ---- build -------------------------------------------------------------------------------------------------------

find_cargo() {
  if command -v cargo >/dev/null; then
    cargo=cargo
  elif [[ -x ${CARGO_HOME:-$home/.cargo}/bin/cargo ]]; then
    cargo=${CARGO_HOME:-$home/.cargo}/bin/cargo
  else
    return 1
  fi
}

# Where cargo puts the binary of a profile, into `built`.
locate_build() {
  local target='' dir
  if find_cargo; then
    target=$(cd "$repo_root" && "$cargo" metadata --format-version 1 --no-deps --offline 2>/dev/null |
      sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p') || target=''
  fi
  if [[ -z $target ]]; then target=${CARGO_TARGET_DIR:-$repo_root/target}; fi
  case $profile in
    dev | test) dir=debug ;;
    bench) dir=release ;;
    *) dir=$profile ;;
  esac
  built=$target/$dir/slotd
}

cargo=''
built=''
if ! $skip_build; then
  find_cargo || die "cargo is not installed: get Rust from https://rustup.rs, or use an earlier build with --skip-build"
  [[ -f $repo_root/Cargo.toml ]] || die "no Cargo.toml in $repo_root: name the repository with --repo-root"
  say "build slotd (profile $profile)"
  (cd "$repo_root" && "$cargo" build --locked --profile "$profile" --bin slotd) ||
    die "the build failed: see cargo's messages above"
fi
locate_build
[[ -x $built ]] || die "no built slotd at $built: run again without --skip-build"

# The one place where the names of the commands stand is the program itself.
read -r -a commands < <("$built" --help | sed -n 's/^Commands: *//p') || true
((${#commands[@]})) || die "$built does not tell its commands: it is no slotd; name the repository with --repo-root"

# ---- install -----------------------------------------------------------------------------------------------------

make_dir "$bin_dir"
for name in "${commands[@]}"; do
  path=$bin_dir/$name
  if [[ (-e $path || -L $path) ]] && ! is_ours "$path"; then
    die "$path exists and is not slotd's: move it away, or choose another directory with --install-bin-dir"
  fi
done
if [[ -d $bin_dir/slotd ]]; then die "$bin_dir/slotd is a directory: move it away"; fi
case $root in "$bin_dir" | "$config_dir") die "the runtime root needs a directory of its own: $root" ;; esac

# A script that sets the root and becomes the binary.
wrapper() {
  local bin=$1 command=$2 quoted_root quoted_bin
  quoted_root=\'${root//\'/\'\\\'\'}\'
  quoted_bin=\'${bin//\'/\'\\\'\'}\'
  printf '#!/bin/sh\n%s The runtime root is not the default one, which the commands would use by themselves.\n' "$MARK"
  # shellcheck disable=SC2016 # The script that is written expands them.
  printf 'if [ -z "$SLOTD_ROOT" ]; then SLOTD_ROOT=%s; export SLOTD_ROOT; fi\n' "$quoted_root"
  # shellcheck disable=SC2016
  printf 'exec %s %s "$@"\n' "$quoted_bin" "$command"
}

install_commands() {
  local path name bin stale
  if [[ $root == "$default_root" ]]; then bin=$bin_dir/slotd; else bin=$bin_dir/slotd.bin; fi
  say "install slotd and ${commands[*]} in $bin_dir"
  write_file 755 "$bin" <"$built"
  for path in "$bin_dir"/*; do
    # What only an earlier version or another root had.
    if ! is_ours "$path"; then continue; fi
    stale=true
    for name in slotd "${commands[@]}"; do if [[ $path == "$bin_dir/$name" ]]; then stale=false; fi; done
    if $stale; then rm -f -- "$path"; fi
  done
  if [[ $root == "$default_root" ]]; then
    for name in "${commands[@]}"; do
      { ln -sfn slotd "$bin_dir/.$name.$$" && mv -fT -- "$bin_dir/.$name.$$" "$bin_dir/$name"; } ||
        die "$bin_dir/$name cannot be made: check the directory's owner"
    done
    rm -f -- "$bin_dir/slotd.bin"
  else
    for name in "${commands[@]}"; do wrapper "$bin" "$name" | write_file 755 "$bin_dir/$name"; done
    wrapper "$bin" '' | write_file 755 "$bin_dir/slotd"
  fi
  program=$bin
}

# Puts the files that slotd has written beside a directory's own into their places; files of others stay.
replace_pages() {
  local dir=$1 made=$2 path old
  local -A ours=()
  while IFS= read -r path; do ours[$path]=true; done < <(our_pages "$dir")
  for path in "$made"/*; do
    old=$dir/${path##*/}
    if [[ (-e $old || -L $old) && -z ${ours[$old]:-} ]]; then
      note "$old is not slotd's and stays"
      rm -f -- "$path"
    fi
  done
  for old in "${!ours[@]}"; do
    # What only an earlier version had.
    if [[ ! -e $made/${old##*/} ]]; then rm -f -- "$old"; fi
  done
  for path in "$made"/*; do
    if [[ -e $path ]]; then chmod 644 -- "$made"/* && mv -f -t "$dir" -- "$made"/*; fi
    return
  done
}

install_pages() {
  local kind dir made made_by
  say "install man pages and completions for bash, zsh and fish in $data_dir and ${page_dirs[fish]}"
  for kind in man bash zsh fish; do
    dir=${page_dirs[$kind]}
    made=$dir/.slotd.$$
    make_dir "$dir"
    case $kind in
      man) made_by=(man) ;;
      *) made_by=(completions "$kind") ;;
    esac
    if ! { "$program" "${made_by[@]}" "$made" && replace_pages "$dir" "$made"; }; then
      rm -rf -- "$made"
      die "what belongs to $kind cannot be written to $dir: see the message above"
    fi
    rmdir -- "$made"
  done
}

# The environment file with the given values; every other line stays.
env_file_text() {
  local line name
  local assignment='^[[:space:]]*([A-Za-z_][A-Za-z0-9_]*)[[:space:]]*='
  local -A todo=()
  for name in "${!given[@]}"; do todo[$name]=${given[$name]}; done
  if [[ -e $env_file ]]; then
    while IFS= read -r line || [[ -n $line ]]; do
      if [[ $line =~ $assignment && -v given[${BASH_REMATCH[1]}] ]]; then
        name=${BASH_REMATCH[1]}
        # A second assignment would win over the first.
        if [[ ! -v todo[$name] ]]; then continue; fi
        env_file_quote "${todo[$name]}"
        line=$name=$REPLY
        unset "todo[$name]"
      fi
      printf '%s\n' "$line"
    done <"$env_file"
  else
    cat <<'END'
# Settings of slotd's daemon. After a change: systemctl --user restart slotd.service, or slotd-daemon restart.
# Values stand in double quotes; a ", \, $ or ` in one has a \ before it. README.md lists the variables.
END
  fi
  for name in SLOTD_ROOT SLOTD_CPU_PARTITIONS SLOTD_GPU_PARTITIONS SLOTD_FEATURES SLOTD_NOTIFY_CMD SLOTD_CGROUP_BASE; do
    if [[ -v todo[$name] ]]; then
      env_file_quote "${todo[$name]}"
      printf '%s=%s\n' "$name" "$REPLY"
    fi
  done
}

install_settings() {
  say "write $env_file"
  make_dir "$config_dir"
  given[SLOTD_ROOT]=$root
  if [[ ! -v SETTINGS[SLOTD_CPU_PARTITIONS] && ! -v given[SLOTD_CPU_PARTITIONS] ]]; then given[SLOTD_CPU_PARTITIONS]=cpu; fi
  if [[ ! -v SETTINGS[SLOTD_GPU_PARTITIONS] && ! -v given[SLOTD_GPU_PARTITIONS] ]]; then given[SLOTD_GPU_PARTITIONS]=gpu; fi
  local text
  text=$(env_file_text)
  # A hook may hold a secret.
  printf '%s\n' "$text" | write_file 600 "$env_file"
  env_file_read "$env_file" || die "$ENV_FILE_ERROR: correct or remove the line"
  (umask 077 && mkdir -p -- "$root/run" "$root/lib/jobs") 2>/dev/null ||
    die "the runtime root $root cannot be made: check who owns the directory above it"
}

# For a unit file, where % is systemd's own sign.
unit_path() { REPLY=${1//%/%%}; }
# As one word of a command line. The program itself may have no quotes in its path; an argument may, and has $ expanded.
unit_program() {
  local word=${1//%/%%}
  if [[ $word == *[\"\'\\]* ]]; then
    word=${word//\\/\\\\}
    word=${word//\"/\\\"}
    REPLY="/usr/bin/env \"${word//\$/\$\$}\""
  else
    REPLY=\"$word\"
  fi
}

install_unit() {
  local line exec_start settings
  unit_program "$program" && exec_start=$REPLY
  unit_path "$env_file" && settings=$REPLY
  make_dir "$unit_dir"
  while IFS= read -r line; do
    case $line in
      ExecStart=*) line="ExecStart=$exec_start daemon" ;;
      EnvironmentFile=*) line="EnvironmentFile=$settings" ;;
    esac
    printf '%s\n' "$line"
  done <"$here/systemd/$UNIT" | write_file 644 "$unit_file"
}

install_daemon_script() {
  local line
  while IFS= read -r line; do
    case $line in
      '#!'*) line+=$'\n'$MARK ;;
      "SLOTD_DAEMON_BIN=''") printf -v line 'SLOTD_DAEMON_BIN=%q' "$program" ;;
      "SLOTD_DAEMON_ENV_FILE=''") printf -v line 'SLOTD_DAEMON_ENV_FILE=%q' "$env_file" ;;
    esac
    printf '%s\n' "$line"
  done <"$here/slotd-daemon" | write_file 755 "$daemon_script"
}

# ---- start -------------------------------------------------------------------------------------------------------

service_runs() {
  case $(systemctl --user is-active "$UNIT") in active | activating | reloading) ;; *) return 1 ;; esac
}

start_service() {
  local main searched
  say "start the systemd user service $UNIT"
  rm -f -- "$daemon_script"
  systemctl --user daemon-reload || die "systemctl --user daemon-reload failed: see its message above"
  # A daemon that was started by hand would keep the service from serving this root.
  main=$(systemctl --user show --property=MainPID --value "$UNIT" 2>/dev/null) || main=''
  stop_daemon "$root" "$main"
  searched=" $(systemctl --user show --property=UnitPath --value 2>/dev/null) "
  if [[ $searched == *" $unit_dir "* ]]; then
    systemctl --user enable --quiet "$UNIT" || die "systemctl --user enable $UNIT failed: see its message above"
  else
    # Elsewhere than the manager looks: enabling by path links the unit.
    systemctl --user enable --quiet "$unit_file" || die "systemctl --user enable $unit_file failed: see its message above"
  fi
  systemctl --user reset-failed "$UNIT" 2>/dev/null || true
  if ! { systemctl --user restart "$UNIT" && daemon_await "$program" "$root" service_runs; }; then
    journalctl --user --unit="$UNIT" --lines=5 --output=cat >&2 2>/dev/null || true
    die "the service does not answer: see journalctl --user -u $UNIT, correct $env_file, and run the installer again"
  fi
  if [[ $(loginctl show-user "$UID" --property=Linger --value 2>/dev/null) == no ]]; then
    note "it stops when you log out; to let it and its jobs run on: loginctl enable-linger"
  fi
}

start_detached() {
  local log=$root/run/slotd.log
  say "start the daemon, detached: there is no systemd user manager here"
  install_daemon_script
  stop_daemon "$root"
  daemon_start "$program" "$root" "$log" || die "the daemon cannot be started: check who owns $root"
  if ! daemon_await "$program" "$root" "kill -0 $DAEMON_STARTED"; then
    tail -n 5 -- "$log" >&2 || true
    die "the daemon does not answer: see $log, correct $env_file, and run the installer again"
  fi
  note "process $DAEMON_STARTED, log $log"
  note "after a reboot: $daemon_script start"
}

# ---- the first job -----------------------------------------------------------------------------------------------

# How long it may wait for its turn on a machine that is full of jobs.
readonly FIRST_JOB_PATIENCE=20

first_job() {
  local dir name pattern id status=0 state
  say "send a first job through the queue"
  dir=$(mktemp -d) || die "no temporary directory can be made: check TMPDIR"
  # Removed before the end: the shell of an EXIT trap would be the installer's.
  pattern=${dir//%/%%}/first-job.out
  for name in $(compgen -e); do
    case $name in SLOTD_* | SBATCH_* | SLURM_*) unset "$name" ;; esac
  done
  # shellcheck disable=SC2016 # The job expands them.
  id=$(timeout "$FIRST_JOB_PATIENCE" "$bin_dir/sbatch" --parsable --wait -J first-job -c 1 --mem 16M -t 1 -D "$root" \
    -o "$pattern" --wrap 'echo "hello from slotd: job $SLURM_JOB_ID on $(hostname)"') || status=$?
  if ((status == 124)) && [[ -n $id ]]; then
    "$bin_dir/scancel" "$id" || true
    rm -rf -- "$dir"
    note "job $id did not get its turn in $FIRST_JOB_PATIENCE seconds, as others fill the machine (see squeue); it was cancelled"
    return
  fi
  [[ -n $id ]] || die "the first job was not taken: see the message above"
  "$bin_dir/sacct" -j "$id" || die "sacct -j $id failed: see the message above"
  if [[ -r $dir/first-job.out ]]; then sed 's/^/    /' "$dir/first-job.out"; fi
  rm -rf -- "$dir"
  state=$("$bin_dir/sacct" -X -n -P -j "$id" -o State)
  [[ $status -eq 0 && $state == COMPLETED ]] ||
    die "the first job ended as ${state:-unknown}, with exit code $status: see scontrol show job $id"
}

program=''
install_commands
install_settings
install_pages
if $skip_systemd; then
  install_daemon_script
  say "installed; nothing was started (--skip-systemd)"
  note "start the daemon with: $daemon_script start"
  if [[ -n $(daemon_pid "$root") ]]; then note "the one that runs is of the earlier installation: $daemon_script restart"; fi
else
  if [[ -n $old_root && $old_root != "$root" ]]; then
    stop_daemon "$old_root"
    note "the jobs and their history in $old_root stay there"
  fi
  if have_manager; then
    install_unit
    start_service
  else
    start_detached
  fi
  first_job
  say "slotd is installed"
fi
case :${PATH:-}: in
  *:"$bin_dir":*) ;;
  *) note "$bin_dir is not in PATH; add it: export PATH=$(printf %q "$bin_dir"):\$PATH" ;;
esac
