//! Leaves the shortcut out of programs that are not optimized: the compiler then copies and fills
//! memory with functions of the C library, which do not work yet.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(has_shortcut)");
    let is = |name: &str, values: &[&str]| {
        std::env::var(name).is_ok_and(|value| values.contains(&value.as_str()))
    };
    let is_known =
        is("CARGO_CFG_TARGET_ARCH", &["x86_64"]) && is("CARGO_CFG_TARGET_OS", &["linux"]);
    if is_known && is("OPT_LEVEL", &["2", "3"]) {
        println!("cargo:rustc-cfg=has_shortcut");
    }
}
