//! Tells cargo that new SQL files change the program, which `embed_migrations!` alone does not
//! notice, and links the program statically where the C library's archive is installed: it starts
//! in half the time then.
//!
//! Rust's own flag for it, `target-feature=+crt-static`, is of no use here: cargo gives it to the
//! procedural macros too, which cannot be built with it, unless the target is named and lies in
//! another directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// What rustc asks the linker for by name, and would get as shared libraries.
const ASKED_FOR: [&str; 3] = ["libc.a", "libm.a", "libgcc_s.a"];

/// What stands for each of them: they need one another.
const ARCHIVES: [&str; 4] = ["libc.a", "libm.a", "libgcc.a", "libgcc_eh.a"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=src/build.rs");
    let is = |name: &str, value: &str| env::var(name).as_deref() == Ok(value);
    let is_native = env::var("HOST") == env::var("TARGET");
    if !is_native || !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "gnu") {
        return Ok(());
    }
    match ARCHIVES.map(archive).into_iter().collect::<Option<Vec<_>>>() {
        Some(archives) if has_threads_in_libc() => link_statically(&archives),
        _ => {
            println!(
                "cargo:warning=no libc.a of glibc 2.34 or later (glibc-static, libc6-dev): slotd is linked dynamically"
            );
            Ok(())
        }
    }
}

/// Where the compiler has it; `None` where it has none.
fn archive(name: &str) -> Option<PathBuf> {
    let told = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(told.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// Before glibc 2.34 threads had an archive of their own, of which a static program gets too
/// little. It is empty since.
fn has_threads_in_libc() -> bool {
    const EMPTY: u64 = 8;
    archive("libpthread.a")
        .and_then(|path| fs::metadata(path).ok())
        .is_none_or(|file| file.len() <= EMPTY)
}

/// Puts the archives where the linker looks first, under the names that it is asked for.
fn link_statically(archives: &[PathBuf]) -> io::Result<()> {
    let dir = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("static");
    fs::create_dir_all(&dir)?;
    let paths: Vec<String> =
        archives.iter().map(|path| format!("\"{}\"", path.display())).collect();
    for name in ASKED_FOR {
        fs::write(dir.join(name), format!("GROUP({})\n", paths.join(" ")))?;
    }
    println!("cargo:rustc-link-arg-bins=-L{}", dir.display());
    // At a fixed address: nothing is relocated when it starts.
    println!("cargo:rustc-link-arg-bins=-static");
    println!("cargo:rustc-link-arg-bins=-no-pie");
    Ok(())
}
