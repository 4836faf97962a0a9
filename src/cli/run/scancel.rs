//! `scancel`.

use super::Done;
use std::ffi::OsString;

pub fn run(_: &[OsString]) -> Done {
    Ok(0)
}
