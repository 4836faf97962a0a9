//! Links the program statically if the C library's archive is installed. A static program starts in
//! half the time. In release builds, it also puts the functions that commands execute next to each
//! other (`startup.ld`).
//!
//! Rust's own flag, `target-feature=+crt-static`, does not work here: cargo also passes it to the
//! procedural macros, which cannot be built with it, unless `--target` is given, and then the build
//! goes to another directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The libraries that rustc requests from the linker by name, which would resolve to shared ones.
const ASKED_FOR: [&str; 3] = ["libc.a", "libm.a", "libgcc_s.a"];

/// The archives that replace each of them. They depend on each other.
const ARCHIVES: [&str; 4] = ["libc.a", "libm.a", "libgcc.a", "libgcc_eh.a"];

/// The order of functions, as a linker script.
const ORDER: &str = "src/startup.ld";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=src/build.rs");
    println!("cargo:rerun-if-changed={ORDER}");
    let is = |name: &str, value: &str| env::var(name).as_deref() == Ok(value);
    let is_native = env::var("HOST") == env::var("TARGET");
    if !is_native || !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "gnu") {
        return Ok(());
    }
    match ARCHIVES.map(archive).into_iter().collect::<Option<Vec<_>>>() {
        Some(archives) if has_threads_in_libc() => link_statically(&archives),
        _ => {
            println!(
                "cargo:warning=libc.a of glibc 2.34 or later not found (glibc-static, libc6-dev): linking slotd dynamically"
            );
            Ok(())
        }
    }
}

/// Returns the path of an archive, or `None` if the compiler does not find it.
fn archive(name: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// Whether threads are part of libc.a. Before glibc 2.34 they had their own archive, and a static
/// program gets too little of it. Since then that archive is empty.
fn has_threads_in_libc() -> bool {
    const EMPTY: u64 = 8;
    archive("libpthread.a")
        .and_then(|path| fs::metadata(path).ok())
        .is_none_or(|file| file.len() <= EMPTY)
}

/// Puts the archives where the linker looks first, under the names that rustc requests.
fn link_statically(archives: &[PathBuf]) -> io::Result<()> {
    let dir = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("static");
    fs::create_dir_all(&dir)?;
    let paths: Vec<String> =
        archives.iter().map(|path| format!("\"{}\"", path.display())).collect();
    for name in ASKED_FOR {
        fs::write(dir.join(name), format!("GROUP({})\n", paths.join(" ")))?;
    }
    println!("cargo:rustc-link-arg-bins=-L{}", dir.display());
    // A fixed address needs no relocations at startup.
    println!("cargo:rustc-link-arg-bins=-static");
    println!("cargo:rustc-link-arg-bins=-no-pie");
    // The program starts with the shortcut of sbatch, which needs no relocations either.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        println!("cargo:rustc-link-arg-bins=-Wl,-e,slotd_entry");
    }
    // GNU ld and LLD accept the script. Other linkers may not, so the user must not have chosen one.
    let chosen = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_chosen = env::var_os("RUSTC_LINKER").is_some()
        || ["linker", "link-arg", "fuse-ld"].iter().any(|word| chosen.contains(word));
    if env::var("PROFILE").as_deref() == Ok("release") && !is_chosen {
        let dir = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bins=-T{dir}/{ORDER}");
    }
    Ok(())
}
