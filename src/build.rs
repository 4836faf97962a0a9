//! Tells cargo that new SQL files change the program: `embed_migrations!` alone does not notice them.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=src/build.rs");
}
