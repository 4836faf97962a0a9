//! The writes of a database, from SQLite's write-ahead log (`-wal`), read as described in the
//! documentation of its format.

use std::fs;
use std::ops::Sub;
use std::path::Path;

/// The sizes of the log's header and of the header of each page.
const HEADER: usize = 32;
const PAGE_HEADER: usize = 24;

/// The writes since the log was last restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// The number of transactions. Each waits for one sync.
    pub commits: usize,
    pub pages: usize,
}

impl Written {
    /// Reads the log of the database at `path`, which must be open in some process.
    pub fn of(path: &Path) -> Written {
        let log = fs::read(path.with_extension("db-wal")).expect("a log");
        let number =
            |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().expect("four bytes"));
        let salt = &log[16..24];
        let page_size = number(8) as usize;
        let pages = (HEADER..)
            .step_by(PAGE_HEADER + page_size)
            .take_while(|at| log.get(at + 8..at + 16) == Some(salt));
        // The last page of a transaction contains the size of the database.
        pages.fold(Written { commits: 0, pages: 0 }, |sum, at| Written {
            commits: sum.commits + usize::from(number(at + 4) > 0),
            pages: sum.pages + 1,
        })
    }
}

/// Whether a text occurs in a committed transaction since the log was last restarted.
pub fn is_committed(path: &Path, text: &str) -> bool {
    let log = fs::read(path.with_extension("db-wal")).expect("a log");
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().expect("four bytes"));
    let salt = &log[16..24];
    let pages = (HEADER..).step_by(PAGE_HEADER + number(8) as usize);
    let last = pages
        .take_while(|at| log.get(at + 8..at + 16) == Some(salt))
        .filter(|at| number(at + 4) > 0)
        .last();
    let end = last.map_or(0, |at| (at + PAGE_HEADER + number(8) as usize).min(log.len()));
    log[..end].windows(text.len()).any(|part| part == text.as_bytes())
}

impl Sub for Written {
    type Output = Written;

    fn sub(self, before: Written) -> Written {
        Written { commits: self.commits - before.commits, pages: self.pages - before.pages }
    }
}
