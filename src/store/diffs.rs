//! Diffs of work trees against their commits.
//!
//! Diffs are compressed and stored once, even if several submissions share one. When their total
//! size exceeds the limit, the least recently used ones are deleted.

use crate::error::StoreError;
use crate::intern::hash;
use crate::schema::{diffs, sources};
use diesel::dsl::{delete, exists, insert_into, not, update};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use slotd_model::Timestamp;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// The maximum size of an uncompressed diff, in bytes. No stored diff is longer.
const LONGEST: u64 = 64 << 20;

/// A compressed diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedDiff(Arc<[u8]>);

/// A writer that compresses a diff.
#[derive(Debug)]
pub struct Packer(ZlibEncoder<Vec<u8>>);

impl Default for Packer {
    fn default() -> Packer {
        Packer(ZlibEncoder::new(Vec::new(), Compression::default()))
    }
}

impl Packer {
    /// Finishes the compression.
    ///
    /// # Errors
    /// Never fails in practice: compressing into memory cannot fail, but the encoder's signature
    /// returns a `Result`.
    pub fn finish(self) -> io::Result<PackedDiff> {
        Ok(PackedDiff(self.0.finish()?.into()))
    }
}

impl Write for Packer {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Stores a diff, or finds an equal one, and returns its row. First deletes older diffs to keep the
/// total size within `most` bytes. Returns `None` if this diff alone exceeds `most`.
pub(super) fn put(
    conn: &mut SqliteConnection,
    diff: &PackedDiff,
    at: Timestamp,
    most: Option<u64>,
) -> Result<Option<i64>, StoreError> {
    let failed = StoreError::sql("store the diff of a work tree");
    let body = &*diff.0;
    let known: Option<i64> = diffs::table
        .filter(diffs::hash.eq(hash(body)).and(diffs::body.eq(body)))
        .select(diffs::diff_id)
        .first(conn)
        .optional()
        .map_err(&failed)?;
    if let Some(id) = known {
        update(diffs::table.find(id))
            .set(diffs::used_us.eq(at.0))
            .execute(conn)
            .map_err(&failed)?;
    }
    let bytes = i64::try_from(body.len()).unwrap_or(i64::MAX);
    if let Some(most) = most {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        make_room(conn, most.saturating_sub(if known.is_some() { 0 } else { bytes }))?;
        if bytes > most {
            return Ok(None);
        }
    }
    if known.is_some() {
        return Ok(known);
    }
    let row = (
        diffs::hash.eq(hash(body)),
        diffs::used_us.eq(at.0),
        diffs::bytes.eq(bytes),
        diffs::is_plain.eq(false),
        diffs::body.eq(body),
    );
    let id = insert_into(diffs::table)
        .values(row)
        .returning(diffs::diff_id)
        .get_result(conn)
        .map_err(&failed)?;
    Ok(Some(id))
}

/// Deletes the least recently used diffs until the rest take up at most `most` bytes.
fn make_room(conn: &mut SqliteConnection, most: i64) -> Result<(), StoreError> {
    let failed = StoreError::sql("delete old diffs");
    // The index covers these columns, so no body is read.
    let all: Vec<(i64, i64)> = diffs::table
        .select((diffs::diff_id, diffs::bytes))
        .order((diffs::used_us, diffs::diff_id))
        .load(conn)
        .map_err(&failed)?;
    let mut total: i64 = all.iter().map(|(_, bytes)| *bytes).sum();
    for (id, bytes) in all {
        if total <= most {
            break;
        }
        delete(diffs::table.find(id)).execute(conn).map_err(&failed)?;
        total -= bytes;
    }
    Ok(())
}

/// Reads the uncompressed diff of a row.
pub(super) fn read(conn: &mut SqliteConnection, id: i64) -> Result<Vec<u8>, StoreError> {
    let (is_plain, body): (bool, Vec<u8>) = diffs::table
        .find(id)
        .select((diffs::is_plain, diffs::body))
        .first(conn)
        .map_err(StoreError::sql("read the diff of a work tree"))?;
    if is_plain {
        return Ok(body);
    }
    let mut text = Vec::new();
    let damaged = |error: io::Error| StoreError::Column {
        table: "diffs",
        column: "body",
        value: error.to_string(),
    };
    ZlibDecoder::new(body.as_slice()).take(LONGEST).read_to_end(&mut text).map_err(damaged)?;
    Ok(text)
}

/// Deletes those of the given diffs that no submission uses any more.
pub(super) fn remove_unused(
    conn: &mut SqliteConnection,
    ids: impl Iterator<Item = i64>,
) -> Result<(), StoreError> {
    let ids: BTreeSet<i64> = ids.collect();
    let is_used = exists(sources::table.filter(sources::diff_id.eq(diffs::diff_id.nullable())));
    delete(diffs::table.filter(diffs::diff_id.eq_any(ids)).filter(not(is_used)))
        .execute(conn)
        .map_err(StoreError::sql("delete the diffs of old jobs"))?;
    Ok(())
}
