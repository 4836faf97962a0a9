//! Facts of this machine. Every probe has a pure `parse` and a `probe` that reads what it parses.
