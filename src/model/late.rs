//! Values that are computed on first use, because most commands do not need them.

use std::cell::LazyCell;

/// A value that is computed on first use.
pub type Late<T> = LazyCell<T, Box<dyn FnOnce() -> T>>;

/// Returns a value that `compute` returns on first use.
pub fn late<T>(compute: impl FnOnce() -> T + 'static) -> Late<T> {
    LazyCell::new(Box::new(compute))
}
