//! Builds the helper program, which test jobs run as `helper`. Cargo does not build the binaries of
//! a dependency.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bin/helper.rs";

/// The modules of the helper program.
const FOLDER: &str = "src/helper";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed={FOLDER}");
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    let helper = PathBuf::from(variable("OUT_DIR")).join("helper");
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args([
        "--edition",
        "2024",
        "--target",
        &variable("TARGET"),
        "-O",
        "-C",
        "strip=symbols",
        SOURCE,
        "-o",
    ]);
    assert!(
        rustc.arg(&helper).status().is_ok_and(|status| status.success()),
        "the helper program does not compile"
    );
    println!("cargo::rustc-env=HELPER={}", helper.display());
}
