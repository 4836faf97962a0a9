//! Rebuilds the crate when an SQL file is added, which `embed_migrations!` alone does not notice.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
    println!("cargo:rerun-if-changed=build.rs");
}
