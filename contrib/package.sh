#!/usr/bin/env bash
# Builds packages of slotd: an archive with a static binary, and two Debian packages. See --help.
set -euo pipefail

usage() {
  cat <<'END'
Usage: contrib/package.sh [OPTIONS] [archive | debian]...

Builds slotd and packs it; without a word, in both ways:

  archive    slotd-VERSION-ARCH-linux.tar.gz: the program, README, book and examples.
             `./slotd install` in the unpacked directory sets everything up for one user.
  debian     slotd_VERSION_ARCH.deb: the program, its commands in /usr/lib/slotd/bin, the units for
             every user, and the book. slotd-slurm-commands_VERSION_all.deb: links to the commands
             in /usr/bin; it conflicts with slurm-client.

      --target TRIPLE  build for this target, such as aarch64-unknown-linux-gnu. That needs its Rust
                       target, its C compiler and C library (Debian: gcc-aarch64-linux-gnu), and
                       qemu-user-static, because the program prints its own man pages
      --program FILE   pack this program instead of building one
      --version TEXT   version of the Debian packages (default: that of the program)
      --out DIR        directory for the results (default: target/package)
  -h, --help           print this help

SHA256SUMS in that directory lists the checksums of all packages there.
END
}
die() {
  printf 'package.sh: error: %s\n' "$*" >&2
  exit 1
}

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
program='' target='' version='' out=$repo/target/package kinds=()
while (($#)); do
  case $1 in
    --program | --target | --version | --out)
      (($# > 1)) || die "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    archive | debian) kinds+=("$1") ;;
    *) die "unknown word $1: see contrib/package.sh --help" ;;
  esac
  shift
done
if ((!${#kinds[@]})); then kinds=(archive debian); fi

[[ -z $program || -z $target ]] || die "--program and --target exclude each other"

# Builds for another target. Its C compiler also links, and the C library is linked statically.
build_for() { # TRIPLE
  local compiler=${1%%-*}-linux-gnu-gcc variable=${1//-/_}
  command -v "$compiler" >/dev/null || die "$compiler, the C compiler for $1, is not installed"
  export "CC_$variable=$compiler" "CARGO_TARGET_${variable^^}_LINKER=$compiler"
  export "CARGO_TARGET_${variable^^}_RUSTFLAGS=-C target-feature=+crt-static"
  (cd "$repo" && cargo build --locked --release --bin slotd --target "$1")
}

if [[ -z $program ]]; then
  built=${CARGO_TARGET_DIR:-$repo/target}${target:+/$target}/release/slotd
  if [[ -n $target ]]; then
    build_for "$target" || die "the build failed: see cargo's messages above"
  else
    (cd "$repo" && cargo build --locked --release --bin slotd) || die "the build failed: see cargo's messages above"
  fi
  program=$built
fi
[[ -x $program ]] || die "$program is not an executable file: build slotd, or set --program"
# The machine that an ELF file is for.
case $(od -An -tx1 -j18 -N1 -- "$program") in
  *3e) arch=x86_64 ;;
  *b7) arch=aarch64 ;;
  *) die "$program is not a program for x86_64 or aarch64" ;;
esac
run=("$program")
if [[ $arch != "$(uname -m)" ]]; then
  command -v "qemu-$arch-static" >/dev/null || die "qemu-$arch-static, which runs a program for $arch, is not installed"
  run=("qemu-$arch-static" "$program")
fi
own=$("${run[@]}" --version)
own=${own##* }
version=${version:-$own}
mkdir -p "$out"
out=$(cd "$out" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Independent of the caller's umask, like everything below.
umask 022

# Only a dynamically linked program contains the path of the loader.
if LC_ALL=C grep -qa '/ld-linux-' <(head -c 4096 -- "$program"); then
  printf 'package.sh: warning: %s is linked dynamically: it runs only with this or a later C library\n' "$program" >&2
fi

pack_archive() {
  local name=slotd-$own-$arch-linux
  mkdir "$work/$name"
  install -m 755 "$program" "$work/$name/slotd"
  install -m 644 "$repo/README.md" "$repo/LICENSE-MIT" "$repo/LICENSE-APACHE" "$work/$name/"
  # README refers to these.
  mkdir -p "$work/$name/contrib/book"
  cp -r "$repo/contrib/book/src" "$work/$name/contrib/book/"
  cp -r "$repo/contrib/CHANGELOG.md" "$repo/contrib/hooks" "$work/$name/contrib/"
  cp "$repo/contrib/CHANGELOG.md" "$work/$name/contrib/book/src/changelog.md"
  cp -r "$repo/examples" "$work/$name/"
  tar -C "$work" --owner=0 --group=0 --sort=name -czf "$out/$name.tar.gz" "$name"
  made+=("$name.tar.gz")
}

# Writes the control file of a package, with its installed size.
control() { # DIRECTORY, further lines on standard input
  mkdir -p "$1/DEBIAN"
  {
    cat
    printf 'Version: %s\nMaintainer: the slotd developers <slotd@localhost>\n' "$version"
    printf 'Section: admin\nPriority: optional\nInstalled-Size: %s\n' "$(du -sk --exclude=DEBIAN "$1" | cut -f1)"
  } >"$1/DEBIAN/control"
}

# Adds the copyright and the changelog, which belong to every package.
documents() { # DIRECTORY PACKAGE
  local doc=$1/usr/share/doc/$2
  mkdir -p "$doc"
  cat "$repo/LICENSE-MIT" - "$repo/LICENSE-APACHE" <<<$'\n----\n' >"$doc/copyright"
  gzip -9nc "$repo/contrib/CHANGELOG.md" >"$doc/changelog.gz"
}

# Moves man pages and completions of some commands into a package.
pages() { # DIRECTORY NAME...
  local dir=$1 name file
  shift
  mkdir -p "$dir"/usr/share/{man/man1,man/man5,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
  for name; do
    for file in "$work/made/man"/man?/"$name".?; do
      if [[ -e $file ]]; then gzip -9nc "$file" >"$dir/usr/share/man/$(basename "$(dirname "$file")")/$(basename "$file").gz"; fi
    done
    if [[ $name == *.* ]]; then continue; fi
    cp "$work/made/bash/$name" "$dir/usr/share/bash-completion/completions/"
    cp "$work/made/zsh/_$name" "$dir/usr/share/zsh/vendor-completions/"
    cp "$work/made/fish/$name.fish" "$dir/usr/share/fish/vendor_completions.d/"
  done
  find "$dir/usr/share" -type d -empty -delete
}

pack_debian() {
  command -v dpkg-deb >/dev/null || die "dpkg-deb is not installed: it is part of Debian's dpkg"
  local main=$work/slotd links=$work/slotd-slurm-commands commands name deb_arch shell
  case $arch in
    x86_64) deb_arch=amd64 ;;
    aarch64) deb_arch=arm64 ;;
    *) die "no Debian architecture is known for $arch" ;;
  esac
  mapfile -t commands < <("${run[@]}" commands)
  "${run[@]}" man "$work/made/man"
  for shell in bash zsh fish; do "${run[@]}" completions "$shell" "$work/made/$shell"; done

  mkdir -p "$main"/usr/{bin,lib/slotd/bin,lib/systemd/user/sockets.target.wants}
  install -m 755 "$program" "$main/usr/lib/slotd/bin/slotd"
  for name in "${commands[@]}"; do ln -s slotd "$main/usr/lib/slotd/bin/$name"; done
  # These names are in no other package, so they can be in /usr/bin.
  for name in slotd sjobmgr; do ln -s "../lib/slotd/bin/$name" "$main/usr/bin/$name"; done
  cp "$repo/contrib/systemd/slotd.socket" "$repo/contrib/systemd/slotd-jobs.service" "$main/usr/lib/systemd/user/"
  sed -e 's,%h/.local/bin/slotd ,/usr/lib/slotd/bin/slotd ,' "$repo/contrib/systemd/slotd.service" \
    >"$main/usr/lib/systemd/user/slotd.service"
  grep -q '^ExecStart=/usr/lib/slotd/bin/slotd ' "$main/usr/lib/systemd/user/slotd.service" ||
    die "contrib/systemd/slotd.service must have an ExecStart= that begins with %h/.local/bin/slotd"
  ln -s ../slotd.socket "$main/usr/lib/systemd/user/sockets.target.wants/slotd.socket"
  pages "$main" slotd sjobmgr slotd.env slotd.toml clusters.toml
  documents "$main" slotd
  cp -r "$repo/contrib/book/src" "$main/usr/share/doc/slotd/book"
  # The page changelog.md includes this file of the repository, which the package lacks.
  cp "$repo/contrib/CHANGELOG.md" "$main/usr/share/doc/slotd/book/changelog.md"
  control "$main" <<END
Package: slotd
Architecture: $deb_arch
Suggests: slotd-slurm-commands, bash-completion
Description: Slurm for one machine
 A job queue with the commands of Slurm for the CPUs, memory and GPUs of one
 host: one daemon for each user, one SQLite file, no configuration. The commands
 are in /usr/lib/slotd/bin; slotd-slurm-commands adds them to /usr/bin.
END
  install -m 755 "$repo/contrib/debian/postinst" "$repo/contrib/debian/prerm" "$main/DEBIAN/"

  mkdir -p "$links/usr/bin"
  mapfile -t commands < <(printf '%s\n' "${commands[@]}" | grep -vx sjobmgr)
  for name in "${commands[@]}"; do ln -s "../lib/slotd/bin/$name" "$links/usr/bin/$name"; done
  pages "$links" "${commands[@]}"
  documents "$links" slotd-slurm-commands
  control "$links" <<END
Package: slotd-slurm-commands
Architecture: all
Depends: slotd (= $version)
Conflicts: slurm-client, slurm-client-emulator
Description: Slurm for one machine: the commands in /usr/bin
 sbatch, srun, squeue and the other commands of Slurm, served by slotd. This
 package cannot be installed next to the commands of Slurm itself.
END
  dpkg-deb --root-owner-group --build "$main" "$out/slotd_${version}_$deb_arch.deb" >/dev/null
  dpkg-deb --root-owner-group --build "$links" "$out/slotd-slurm-commands_${version}_all.deb" >/dev/null
  made+=("slotd_${version}_$deb_arch.deb" "slotd-slurm-commands_${version}_all.deb")
}

made=()
for kind in "${kinds[@]}"; do "pack_$kind"; done
# Packages of other targets may be there.
(cd "$out" && find . -maxdepth 1 \( -name '*.deb' -o -name '*.tar.gz' \) -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
for name in "${made[@]}"; do printf '%s/%s\n' "$out" "$name"; done
